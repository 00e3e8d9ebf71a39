"""Feeds: events of informers, applied to the cache and the queue."""
