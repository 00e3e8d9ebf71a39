"""Conformance cases: a cluster, a pod and what kube-scheduler decides, as one JSON object per line.

A case is read, attempted once, and its result is written in the same format, so that both schedulers' results can be
compared.
"""
