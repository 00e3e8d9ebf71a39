"""Pure functions from custom resources to the desired state, and from the running state to statuses and events."""
