"""The in-tree plugins, one module or package each, with the names of kube-scheduler's plugins.

Plugins do not import the runtime, and import other plugins only if necessary; what two of them share belongs in the
columns or in the model.
"""
