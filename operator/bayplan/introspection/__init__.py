"""State of the running operator: status, cache check, profiler and tasks."""
