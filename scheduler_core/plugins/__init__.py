"""The in-tree plugins, one module or package each.

Owns kube-scheduler's plugins under their own names, vectorised. A plugin must not know the runtime that calls it nor,
without need, another plugin: what two of them share belongs to the columns or to the model.
"""
