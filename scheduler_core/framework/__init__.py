"""The scheduling framework: what a plugin author imports.

Extension points, the values that pass through them, and the plugin registry. A plugin, in-tree or installed with pip,
imports from this package and from the layers below it, never from the runtime that calls it.
"""
