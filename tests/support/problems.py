"""What is wrong with a document, as lines that a test can compare.

Owns the way from a refusal to its lines. It must not know any one configuration.
"""

from collections.abc import Callable

from scheduler_core.errors import ConfigError


def problems_in(read: Callable[[], object]) -> list[str]:
    """Read a document; every problem as ``path: message``, none when it is good."""
    try:
        read()
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


def paths_in(read: Callable[[], object]) -> list[str]:
    """Read a document; the field path of every problem."""
    try:
        read()
    except ConfigError as error:
        return [problem.path for problem in error.problems]
    return []
