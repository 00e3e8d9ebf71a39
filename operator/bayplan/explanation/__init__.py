"""Explanations of pods and gangs: why a pod or gang is or is not scheduled, as text and as JSON or YAML.

The same explanation is built from the running operator, an API server or files.
"""
