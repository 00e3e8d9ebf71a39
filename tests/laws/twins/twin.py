"""One of two schedulers that process the same cluster lifetime, and its decisions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.runtime.equivalence import ReuseBounds
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from scheduler_core.snapshot.interning import SnapshotBounds
from tests.laws.twins.devices import TwinClaims
from tests.laws.twins.opaque_plugins import OPAQUE_PLUGINS
from tests.laws.twins.storage import CLASSES, VolumeControllers
from tests.support.scheduling import default_rig
from tests.support.storage import RecordingStorageWriter

_RESERVED_AFTER_SECONDS = 10.0
_BINDING_ROUNDS = 60
_ROUNDS_WITHOUT_TIME = 10


class Bounds(NamedTuple):
    """Bounds of a scheduler: of cached results, and of the tables that the cached results read."""

    reuse: ReuseBounds = ReuseBounds()
    snapshot: SnapshotBounds = SnapshotBounds()


REAL = Bounds()
TINY = Bounds(
    ReuseBounds(classes=3, ranking_bytes=2000, seen_keys=3, row_results=1),
    # The bound of resources is not reduced: resources beyond the bound are available to no pod.
    SnapshotBounds(
        changes=3,
        label_columns=3,
        taint_lists=3,
        queries=3,
        idle_checks=3,
        default_selectors=3,
        toleration_tables=3,
        selector_tables=3,
        volume_affinities=3,
    ),
)


class Decision(NamedTuple):
    """Result of one entry of the queue.

    Attributes:
        uid: UID of the pod, or of the gang's entry.
        chosen: UID, node and number of feasible nodes of each scheduled pod.
        bound: Which of these pods were bound.
        events: Type, reason and note of each event.
        patches: Pod, nominated node and condition of each status patch.
        victims: UIDs of deleted pods.
        gang: Reason and message of a gang's outcome, and its reservation.
    """

    uid: str
    chosen: tuple[tuple[str, str, int], ...]
    bound: tuple[bool, ...]
    events: tuple[tuple[str, str, str], ...]
    patches: tuple[tuple[str, str | None, str], ...]
    victims: tuple[str, ...]
    gang: tuple[str, str, str] | None = None


class Twin:
    """A scheduler that records every decision.

    Args:
        bounds: Bounds of the scheduler; None for a scheduler without cached results.
    """

    def __init__(self, bounds: Bounds | None) -> None:
        own = bounds or REAL
        options = SchedulerOptions(
            seed=7,
            gang_reservation_seconds=_RESERVED_AFTER_SECONDS,
            reuses_results=bounds is not None,
            bounds=own.snapshot,
            reuse_bounds=own.reuse,
        )
        storage = RecordingStorageWriter()
        self.devices = TwinClaims()
        ports = SchedulerPorts(storage=storage, claims=self.devices.writer)
        self.rig = default_rig(plugins=OPAQUE_PLUGINS, options=options, serve=False, ports=ports)
        self.scheduler = self.rig.scheduler
        self.controllers = VolumeControllers(self.scheduler.storage_feed, storage)
        self.devices.serve(self.scheduler.device_feed)
        for obj in CLASSES:
            self.controllers.add(obj)
        self.scheduler.group_feed.serve(GroupSource.BAYPLAN)

    def serve(self, config: ProfileConfig) -> None:
        """Activate a profile revision."""
        self.rig.serve(config)

    @property
    def reused(self) -> int:
        """Number of pods whose node was chosen from cached results."""
        return sum(each.reused for each in self.rig.context.metrics.profiles.values())

    @property
    def reuse_errors(self) -> dict[str, int]:
        """Errors in cached results by plugin; "" for the scheduler's own errors."""
        found: Counter[str] = Counter()
        for each in self.rig.context.metrics.profiles.values():
            found.update(each.reuse_errors)
        return dict(found)

    async def decide(self) -> Decision | None:
        """Schedule and bind the next entry of the queue; return None if the queue is empty."""
        writer = self.rig.writer
        queued = self.rig.queue.pop()
        if queued is None:
            return None
        self.pop(queued)
        events, patches, deletions = len(writer.events), len(writer.patches), len(writer.deletions)
        attempts: Sequence[Attempt]
        if isinstance(queued, QueuedGang):
            attempts = await self.rig.scheduler.cycles.gangs.schedule(queued)
        else:
            attempt = self.rig.scheduler.cycles.pods.schedule(queued)
            attempts = () if attempt is None else (attempt,)
        chosen = tuple((each.info.uid, each.node_name, each.feasible_count) for each in attempts)
        await self.decided()
        bound = await self._bind(attempts)
        return Decision(
            queued.uid,
            chosen,
            bound,
            tuple((event.type, event.reason, event.note) for event in writer.events[events:]),
            tuple(
                (patch.name, patch.nominated_node_name, patch.condition.message if patch.condition else "")
                for patch in writer.patches[patches:]
            ),
            tuple(deletion.uid for deletion in writer.deletions[deletions:]),
            self._outcome(queued) if isinstance(queued, QueuedGang) else None,
        )

    def pop(self, queued: QueuedPod) -> None:
        """Handle an entry that was popped; subclasses override this."""

    async def decided(self) -> None:
        """Handle the end of a cycle; subclasses override this."""

    def _outcome(self, entry: QueuedGang) -> tuple[str, str, str] | None:
        gang = self.rig.queue.gangs.get(entry.gang_key)
        if gang is None or gang.outcome is None:
            return None
        return gang.outcome.reason, gang.outcome.message, gang.reservation

    async def _bind(self, attempts: Sequence[Attempt]) -> tuple[bool, ...]:
        tasks = [asyncio.create_task(self.rig.scheduler.cycles.binding.bind(attempt)) for attempt in attempts]
        for rounds in range(_BINDING_ROUNDS * len(tasks)):
            if all(task.done() for task in tasks):
                break
            await asyncio.sleep(0)
            self.controllers.complete()
            if rounds > _ROUNDS_WITHOUT_TIME:
                # A bind that waits for volumes checks them again after a while.
                self.rig.clock.advance(1)
        return tuple([await asyncio.wait_for(task, 5) for task in tasks])
