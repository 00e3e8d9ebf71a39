"""Kubernetes objects as the core sees them: decoded structs and the rules written about them.

Owns the fields that scheduling reads and the arithmetic on them (quantities, selectors, taints, requests). Must not
know columns, plugins or I/O. One set of structs serves the informers, the simulator and the tests, so that what is
tested is what is decoded from the wire.
"""
