"""Arithmetic on arrays, with the same results as kube-scheduler's per node.

The formulas use no columns, plugins or configuration, so tests can compare them with their plain form on any numbers.
"""
