"""Whether pods that need not exist would be scheduled: now, after evictions, or with new nodes."""
