"""Runs the extension points of a framework instance.

Owns the calling of plugins: their order, their statuses, the faults they raise. Must not know the queue, the cache's
states or what comes before and after a point in a cycle.
"""
