"""Share of the scheduler's time that a shadow profile may use.

Time is credited as it passes, up to one second's share, and what a decision took is charged after it. A decision that
took too long leaves a debt, so no further one starts until the share covers it.
"""

from __future__ import annotations

from collections.abc import Callable

_FULL_SECONDS = 1.0
_LONGEST_SECONDS = 0.01
"""Longest time of decisions between two slices, for which live decisions and events wait."""
_WEIGHT = 0.1


class TimeBudget:
    """Credit of one shadow profile, for a share of the time above 0 and at most 1."""

    def __init__(self, share: float, now: Callable[[], float]) -> None:
        self._share = share
        self._now = now
        self._credit = share * _FULL_SECONDS
        self._credited = now()
        self._typical: float | None = None
        self.spent = 0.0

    @property
    def seconds(self) -> float:
        """Time that may be used now; negative for a debt."""
        now = self._now()
        self._credit = min(self._share * _FULL_SECONDS, self._credit + self._share * (now - self._credited))
        self._credited = now
        return self._credit

    def decisions(self, wanted: int) -> int:
        """Return how many of the wanted decisions may be made now, by what earlier ones took."""
        credit, each = self.seconds, self._typical
        if credit <= 0 or not wanted:
            return 0
        if each is None:
            # How long a decision takes is not known before the first.
            return 1
        seconds = min(credit, _LONGEST_SECONDS)
        if wanted * each <= seconds:
            return wanted
        # A decision that takes longer than all of the credit waits until the credit is full.
        return int(seconds / each) or int(credit >= min(each, self._share * _FULL_SECONDS))

    def charge(self, seconds: float, decisions: int) -> None:
        self._credit = self.seconds - seconds
        self.spent += seconds
        if decisions:
            each = seconds / decisions
            self._typical = each if self._typical is None else (1 - _WEIGHT) * self._typical + _WEIGHT * each
