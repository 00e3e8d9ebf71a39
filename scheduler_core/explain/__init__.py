"""Explanations: why a pod or gang is not scheduled, which nodes are nearest, and which events would help."""
