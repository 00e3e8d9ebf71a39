"""Runs the extension points of a framework instance: plugin order, statuses, and exceptions of plugins."""
