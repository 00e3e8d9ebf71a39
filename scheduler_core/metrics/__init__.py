"""Metrics of the scheduler: histograms, the cycle recorder, slow cycles and the decision log.

The operator exports them under kube-scheduler's names; nothing is decided by them.
"""
