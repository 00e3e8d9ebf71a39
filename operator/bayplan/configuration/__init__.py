"""KubeSchedulerConfiguration files: load, complete with defaults, import as manifests."""
