"""The scheduling framework as a plugin author sees it.

Owns the extension points, the values that pass through them and the registry. A plugin, in-tree or installed with pip,
imports from here and from the layers below, never from the runtime that calls it.
"""
