"""Validation problems of a document as strings that a test compares."""

from collections.abc import Callable

from scheduler_core.errors import ConfigError


def problems_in(read: Callable[[], object]) -> list[str]:
    """Read a document; return its problems as ``path: message``."""
    try:
        read()
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def paths_in(read: Callable[[], object]) -> list[str]:
    """Read a document; return the field paths of its problems."""
    try:
        read()
    except ConfigError as error:
        return [problem.path for problem in error.problems]
    return []
