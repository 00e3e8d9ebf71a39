"""Adds the attempts of gangs to the history that the page shows."""

from __future__ import annotations

from scheduler_core.metrics.attempt_reports import AttemptHistory, EndedAttempt
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.gang_registry import Gangs


class GangAttempts:
    """Adds the attempts of gangs to the history."""

    def __init__(self, gangs: Gangs, history: AttemptHistory, clock: Clock) -> None:
        self._gangs = gangs
        self._history = history
        self._clock = clock
        self._seen: dict[GroupKey, GangOutcome] = {}
        gangs.on_change.append(self._changed)

    def _changed(self, gang: Gang) -> None:
        outcome = gang.outcome
        if outcome is None or self._gangs.get(gang.key) is not gang:
            self._seen.pop(gang.key, None)
            return
        if self._seen.get(gang.key) is outcome:
            return
        # Each attempt sets a new outcome.
        self._seen[gang.key] = outcome
        profile = next((pod.spec.scheduler_name for pod in gang.pods.values()), "")
        message = "" if outcome.is_scheduled else outcome.message
        self._history.add(gang.key, EndedAttempt(self._clock.now(), profile, outcome.reason, "", message))
