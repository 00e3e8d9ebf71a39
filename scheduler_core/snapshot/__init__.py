"""Cluster state in columns: nodes, the pods on them, and what else plugins read of the cluster.

Columns, because a cycle reads every node, and one vector operation over 5,000 int64 costs as much as two attribute
lookups on one node object.
"""
