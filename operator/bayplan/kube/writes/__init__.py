"""Writes to the API server: binds, the dispatcher of other writes, and events."""
