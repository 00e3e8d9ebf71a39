"""Cluster I/O: what is read from the API server, and what is written to it.

Owns every byte that goes over HTTP. Must not know profiles, plugins or the scheduling cycle: it fulfils
:mod:`scheduler_core.ports` and feeds sinks. Pods and nodes are many and change all the time, so this package speaks
HTTP with aiohttp and decodes with msgspec; the Kubernetes client library is used for credentials only.
"""
