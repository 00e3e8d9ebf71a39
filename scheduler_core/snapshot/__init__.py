"""Columnar cluster state: what the scheduler knows of nodes and of the pods on them.

Owns the columns, the interners behind them and the cache's assume/confirm/forget. Must not know plugins, queues or
I/O. Why columns: a cycle looks at every node, and one vector operation over 5,000 int64 costs what two attribute
look-ups on one node object cost.
"""
