"""PodGroups of the three supported APIs: reading their specs, and writing their statuses and events."""
