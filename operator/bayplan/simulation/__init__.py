"""The scheduler without a cluster: reads objects from files and computes placements.

It replaces the API server: reading files, admission, an in-memory cluster and virtual time. The scheduler is the one
that runs in a cluster.
"""
