"""SchedulerProfiles and PluginConfigs: from objects to running framework instances, and back to status."""
