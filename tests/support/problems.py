"""Validation problems of a document as strings that a test compares."""

from collections.abc import Callable, Sequence

from scheduler_core.errors import ConfigError, Problem


def problems_in(read: Callable[[], object]) -> list[str]:
    """Read a document; return its problems as ``path: message``."""
    return [str(problem) for problem in _problems(read)]


def paths_in(read: Callable[[], object]) -> list[str]:
    """Read a document; return the field paths of its problems."""
    return [problem.path for problem in _problems(read)]


def _problems(read: Callable[[], object]) -> Sequence[Problem]:
    try:
        read()
    except ConfigError as error:
        return error.problems
    return ()
