"""The process itself: logs, tracing, garbage collection, and a check that its event loop runs."""
