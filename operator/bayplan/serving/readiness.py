"""Whether the process is ready, and what it waits for.

Owns the list of conditions. It must not know what they mean: each is named by whoever fulfils it, and what keeps it
from being fulfilled is asked of them when somebody wants to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that readiness is made of.

    Attributes:
        name: What it is.
        is_passed: Whether it holds.
        why: Why it does not.
    """

    name: str
    is_passed: bool
    why: str = ""


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

    @property
    def checks(self) -> list[Check]:
        """Everything that readiness is made of, whether it holds or not."""
        if self._stopping:
            return [Check("the process goes on", is_passed=False, why="it is stopping")]
        if self._standby is not None:
            return [Check(f"{self._standby()}; ready to take over", is_passed=True)]
        return [
            Check(_as_done(condition), fulfilled, "" if fulfilled else self._obstacle(condition) or "not yet")
            for condition, fulfilled in self._fulfilled.items()
        ]

    def _described(self, condition: str) -> str:
        text = self._obstacle(condition)
        return f"{condition}: {text}" if text else condition

    def _obstacle(self, condition: str) -> str:
        obstacle = self._obstacles.get(condition)
        return obstacle() if obstacle is not None else ""


def _as_done(condition: str) -> str:
    """A condition, which is worded as what goes on, worded as what it leads to: a check has one name either way."""
    return condition.replace(" are being ", " are ").replace(" has not ", " has ")
