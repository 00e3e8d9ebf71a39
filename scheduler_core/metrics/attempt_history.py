"""The last attempts of pods and gangs, in memory; stored only if the operator serves its page.

Pods that were bound by their first attempt are most of all pods, so they have a table of their own: they must not
displace the pods that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

SUBJECTS = 10_000
"""Default maximum number of pods and gangs of each table."""
ATTEMPTS = 10
"""Default maximum number of attempts of each pod or gang."""


class EndedAttempt(NamedTuple):
    """Result of an attempt.

    Attributes:
        ended: End of the attempt, in the clock's seconds.
        profile: Scheduler name of the profile.
        result: ``scheduled``, ``unschedulable`` or ``error``; of a gang the reason of its condition.
        node_name: The chosen node, "" for none.
        message: Why the attempt failed, "" if it succeeded.
    """

    ended: float
    profile: str
    result: str
    node_name: str
    message: str


class AttemptHistory:
    """Attempts by the UID of the pod or the key of the gang."""

    __slots__ = ("_attempts", "_placed", "_repeated", "_subjects")

    def __init__(self, subjects: int = SUBJECTS, attempts: int = ATTEMPTS) -> None:
        self._subjects = subjects
        self._attempts = attempts
        self._placed: dict[Hashable, EndedAttempt] = {}
        self._repeated: dict[Hashable, deque[EndedAttempt]] = {}

    def scheduled(self, subject: Hashable, attempt: EndedAttempt) -> None:
        """Add the attempt by which a pod was bound."""
        if subject in self._repeated:
            self.add(subject, attempt)
            return
        self._placed[subject] = attempt
        if len(self._placed) > self._subjects:
            del self._placed[next(iter(self._placed))]

    def add(self, subject: Hashable, attempt: EndedAttempt) -> None:
        """Add an attempt after which others may follow, also one of a pod that was bound before."""
        found = self._repeated.pop(subject, None)
        if found is None:
            placed = self._placed.pop(subject, None)
            found = deque(() if placed is None else (placed,), maxlen=self._attempts)
        self._repeated[subject] = found
        found.append(attempt)
        if len(self._repeated) > self._subjects:
            del self._repeated[next(iter(self._repeated))]

    def of(self, subject: Hashable) -> list[EndedAttempt]:
        """Return the attempts of a pod or gang, newest first."""
        placed = self._placed.get(subject)
        return list(reversed(self._repeated.get(subject, ()))) if placed is None else [placed]
