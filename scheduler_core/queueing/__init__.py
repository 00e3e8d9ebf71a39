"""The scheduling queue: which pod is tried when.

Owns every pod that waits to be scheduled. Must not know filters, scores or nodes: it hears of events and asks the hints
that plugins registered.
"""
