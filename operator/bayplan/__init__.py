"""Bayplan, the operator around the scheduler core: custom resources, cluster I/O and the command line.

Decisions about pods are made in :mod:`scheduler_core`, which does not import this package.
"""

REFERENCE_VERSION = "v1.37.1"
"""The kube-scheduler whose behaviour Bayplan follows."""


def __getattr__(name: str) -> str:
    """Read ``__version__`` on access: it takes 25 ms, and most commands do not need it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - this import takes the 25 ms

    return version("bayplan")
