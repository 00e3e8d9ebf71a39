"""Common Expression Language as Kubernetes uses it to select devices."""
