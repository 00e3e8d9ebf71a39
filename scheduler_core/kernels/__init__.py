"""Arithmetic on arrays, exactly as kube-scheduler does it on one node at a time.

Owns formulas only: no names of resources, no columns, no configuration. Why apart from the plugins: a formula that
takes arrays and gives arrays can be held against its plain form on any numbers, without a cluster around it.
"""
