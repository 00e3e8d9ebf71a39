"""Which new nodes would help gangs that wait, for the statuses of their PodGroups.

A search takes several times as long as an attempt of the gang. So one gang is searched at a time, in a copy of the
process if the cluster is large, for at most a hundredth of the time. A result is shown until the next one, or until the
gang waits no longer for room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from typing import Any

import msgspec

from bayplan.process.copies import BackgroundDocuments, Document
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.explain.findings import NewNodes
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.scheduler import Scheduler
from scheduler_core.step_counter import TimeBudget

log = logging.getLogger(__name__)

_SHARE = 0.01
_PAUSE_SECONDS = 5.0
_VALID_SECONDS = 60.0
_VALID_AT_LEAST_SECONDS = 10.0
"""Age of a result from which a changed reason of the gang starts another search."""
_OK = 200
_decode = msgspec.json.Decoder(NewNodes).decode


@dataclass(frozen=True, slots=True)
class _Result:
    found: NewNodes
    message: str
    at: float


class HelpfulNodeSearch:
    """Searches new nodes for gangs of Bayplan's API, one after the other, and calls ``changed`` for new results."""

    def __init__(
        self,
        scheduler: Scheduler,
        documents: BackgroundDocuments,
        clock: Clock,
        changed: Callable[[GroupKey], None],
    ) -> None:
        self._scheduler = scheduler
        self._documents = documents
        self._clock = clock
        self._changed = changed
        self._budget = TimeBudget(_SHARE, monotonic)
        self._results: dict[GroupKey, _Result] = {}

    def of(self, gang: Gang) -> NewNodes | None:
        """Return the last result for a gang that waits for room; None if there is none."""
        result = self._results.get(gang.key)
        return None if result is None or not _waits_for_room(gang) else result.found

    async def run(self) -> None:
        """Search until cancelled."""
        while True:
            await self._clock.sleep(_PAUSE_SECONDS)
            try:
                await self._search_due()
            except Exception:
                # The results are statements in a status; the next round may succeed.
                log.exception("New nodes for gangs cannot be searched because of a bug; please report it")

    async def _search_due(self) -> None:
        gangs = self._scheduler.context.queue.gangs
        waiting = [gang.key for gang in gangs if _waits_for_room(gang)]
        self._results = {key: self._results[key] for key in waiting if key in self._results}
        # Gangs without a result first, then the oldest results.
        due = sorted(waiting, key=lambda key: (self._age(key) * -1, key))
        for key in due:
            gang = gangs.get(key)
            if self._budget.seconds <= 0:
                return
            if gang is not None and self._is_due(gang):
                await self._search(gang)

    def _age(self, key: GroupKey) -> float:
        result = self._results.get(key)
        return float("inf") if result is None else self._clock.now() - result.at

    def _is_due(self, gang: Gang) -> bool:
        if not _waits_for_room(gang):
            return False
        result, age = self._results.get(gang.key), self._age(gang.key)
        if result is None or age >= _VALID_SECONDS:
            return True
        return age >= _VALID_AT_LEAST_SECONDS and result.message != _message(gang)

    async def _search(self, gang: Gang) -> None:
        # Most processes have no gang that waits for room, and the modules of explanations cost start-up time.
        explaining: Any = await asyncio.to_thread(import_module, "bayplan.explanation.building")
        scheduler, message = self._scheduler, _message(gang)
        await scheduler.context.suspension.over()

        def make() -> Document:
            found = NewNodes()
            # A pod that cannot be compiled is reported by the attempts of the gang.
            with contextlib.suppress(SchedulerCoreError), scheduler.context.steps.dry_run():
                found = explaining.new_nodes_for(scheduler, gang)
            return Document(_OK, msgspec.json.encode(found))

        built = await self._documents.build(make, lambda seconds: self._budget.charge(seconds, 1))
        self._results[gang.key] = _Result(_decode(built.body), message, self._clock.now())
        self._changed(gang.key)


def _waits_for_room(gang: Gang) -> bool:
    outcome = gang.outcome
    return (
        gang.key.source is GroupSource.BAYPLAN
        and gang.group is not None
        and gang.has_quorum
        and bool(gang.waiting)
        and not gang.binding
        and outcome is not None
        and outcome.reason == "Unschedulable"
        and outcome.is_helped_by_nodes
    )


def _message(gang: Gang) -> str:
    return "" if gang.outcome is None else gang.outcome.message
