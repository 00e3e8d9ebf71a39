"""Conformance cases: a cluster, a pod and what kube-scheduler decides, one JSON object a line.

Owns their reading, the one attempt for each, and the writing of results in the same format, so that both schedulers'
answers can be laid side by side. It must not know what the right answer is.
"""
