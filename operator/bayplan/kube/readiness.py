"""Readiness of the process, as a list of named conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

_CURRENT = "watches are current"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    is_passed: bool
    why: str = ""


class Readiness:
    """Conditions that must be fulfilled before the process is ready."""

    def __init__(self, conditions: Iterable[str]) -> None:
        self._conditions = tuple(conditions)
        self._fulfilled: dict[str, bool] = dict.fromkeys(self._conditions, False)
        # Functions: why a condition is not fulfilled is computed only when readiness is requested.
        self._obstacles: dict[str, Callable[[], str]] = {}
        self._stopping = False
        self._standby: Callable[[], str] | None = None
        self._warnings: Callable[[bool], list[str]] = lambda _: []
        self._stale: Callable[[], list[str]] = list

    def require(self, condition: str, obstacle: Callable[[], str]) -> None:
        """Add a condition before the others; ``obstacle`` returns why it is not fulfilled, "" if unknown."""
        last = {each: self._fulfilled.pop(each) for each in self._conditions}
        self._fulfilled |= {condition: False, **last}
        self._obstacles[condition] = obstacle

    def explain(self, condition: str, obstacle: Callable[[], str]) -> None:
        """Set what returns why a condition is not fulfilled; see :meth:`require`."""
        self._obstacles[condition] = obstacle

    def warn_by(self, warnings: Callable[[bool], list[str]]) -> None:
        """Set what returns what fails closed although the process is ready; called with whether to name all objects."""
        self._warnings = warnings

    def warnings(self, *, names_all: bool) -> list[str]:
        """Return what fails closed and which data is stale; only some readers may see names in all namespaces."""
        return [*self._stale(), *self._warnings(names_all)]

    def fail_if_stale(self, stale: Callable[[], list[str]]) -> None:
        """Set what returns the stale data, with reasons."""
        self._stale = stale

    def fulfil(self, condition: str) -> None:
        self._fulfilled[condition] = True

    def stand_by(self, role: Callable[[], str]) -> None:
        """Mark the process as a standby that is ready to take over; ``role`` returns a text that names the leader."""
        self._standby = role

    def lead(self) -> None:
        """Mark the process as the leader: conditions that are not fulfilled count from now on."""
        self._standby = None

    @property
    def role(self) -> str:
        """Role of a standby, as text; empty for a process that schedules."""
        return self._standby() if self._standby is not None else ""

    def stop(self) -> None:
        """Mark the process as stopping: it is not ready any more."""
        self._stopping = True

    @property
    def missing(self) -> list[str]:
        """Conditions that are not fulfilled; empty if the process is ready."""
        if self._stopping:
            return ["the process is stopping"]
        if self._standby is not None:
            return []
        return [self._described(condition) for condition, fulfilled in self._fulfilled.items() if not fulfilled]

    @property
    def failures(self) -> list[str]:
        """Reasons why the process is not ready: the missing conditions, and stale data."""
        # Not a part of `missing`, on which explanations and the page depend: they are available with stale data. A
        # standby with stale data is not ready to take over either.
        return [*self.missing, *(() if self._stopping else self._stale())]

    @property
    def checks(self) -> list[Check]:
        if self._stopping:
            return [Check("shutdown", is_passed=False, why="the process is stopping")]
        if self._standby is not None:
            checks = [Check(f"{self._standby()}; ready to take over", is_passed=True)]
        else:
            checks = [
                Check(_as_done(condition), fulfilled, "" if fulfilled else self._obstacle(condition) or "not yet")
                for condition, fulfilled in self._fulfilled.items()
            ]
        stale = self._stale()
        checks.append(Check(_CURRENT, not stale, "; ".join(stale)))
        return [*checks, *(Check("warning", is_passed=True, why=text) for text in self._warnings(False))]

    def _described(self, condition: str) -> str:
        text = self._obstacle(condition)
        return f"{condition}: {text}" if text else condition

    def _obstacle(self, condition: str) -> str:
        obstacle = self._obstacles.get(condition)
        return obstacle() if obstacle is not None else ""


def _as_done(condition: str) -> str:
    """Return the name of the check for a condition, the same whether it passes: "pods are listed"."""
    return condition.replace(" are being ", " are ").replace(" has not ", " has ")
