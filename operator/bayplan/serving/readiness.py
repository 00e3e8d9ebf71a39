"""Whether the process is ready, and what it waits for.

Owns the list of conditions. It must not know what they mean: each is named by whoever fulfils it, and what keeps it
from being fulfilled is asked of them when somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Readiness:
    """What must be fulfilled before the process is ready.

    Args:
        conditions: Their names.
    """

    def __init__(self, conditions: Iterable[str]) -> None:
        self._fulfilled: dict[str, bool] = dict.fromkeys(conditions, False)
        self._obstacles: dict[str, Callable[[], str]] = {}
        self._stopping = False
        self._standby: Callable[[], str] | None = None

    def explain(self, condition: str, obstacle: Callable[[], str]) -> None:
        """Let ``obstacle`` say what keeps a condition from being fulfilled; empty when nothing is known to."""
        self._obstacles[condition] = obstacle

    def fulfil(self, condition: str) -> None:
        """A condition holds from now on."""
        self._fulfilled[condition] = True

    def stand_by(self, role: Callable[[], str]) -> None:
        """The process is ready to take over, and waits; ``role`` says for whom."""
        self._standby = role

    def lead(self) -> None:
        """The process takes over: what it has not done so far is missing now."""
        self._standby = None

    @property
    def role(self) -> str:
        """What a standby says of itself; empty for a process that works."""
        return self._standby() if self._standby is not None else ""

    def stop(self) -> None:
        """The process stops: it is not ready any more."""
        self._stopping = True

    @property
    def missing(self) -> list[str]:
        """What is not fulfilled; empty when the process is ready."""
        if self._stopping:
            return ["the process is stopping"]
        if self._standby is not None:
            return []
        return [self._described(condition) for condition, fulfilled in self._fulfilled.items() if not fulfilled]

    def _described(self, condition: str) -> str:
        obstacle = self._obstacles.get(condition)
        text = obstacle() if obstacle is not None else ""
        return f"{condition}: {text}" if text else condition
