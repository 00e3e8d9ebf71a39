"""Cluster I/O: requests to and watches of the API server; implements the I/O part of :mod:`scheduler_core.ports`.

Pods and nodes are many and change constantly, so this package uses HTTP with aiohttp and decodes with msgspec; the
Kubernetes client library loads only the credentials.
"""
