"""The scheduler without a cluster: files in, placements out.

Owns what stands in the API server's place (reading files, admission, an in-memory cluster, virtual time). The scheduler
itself is the one that runs in a cluster.
"""
