"""Bayplan, the operator around the scheduler core.

Owns the custom resources, the cluster's I/O and the command. What is decided about pods is decided in
:mod:`scheduler_core`, which knows nothing of this package.
"""


def __getattr__(name: str) -> str:
    """``__version__``, read when it is asked for: most commands never ask, and reading it takes 25 ms."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version  # noqa: PLC0415 - the import is what takes the time

    return version("bayplan")
