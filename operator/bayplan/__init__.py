"""Bayplan, the operator around the scheduler core.

Owns the custom resources, the cluster's I/O and the command. What is decided about pods is decided in
:mod:`scheduler_core`, which knows nothing of this package.
"""

from importlib.metadata import version

__version__ = version("bayplan")
