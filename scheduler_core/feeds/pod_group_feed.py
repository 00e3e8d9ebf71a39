"""Event handlers for PodGroups of all APIs: they update the gangs and the queue.

Callers convert the objects of each API. While a cycle is suspended, changes are buffered and then applied in order.
A change that raises gates the members of its group until it is delivered again: half of it may be applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle.internal_errors import try_twice
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import Problem
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue


class GroupFeed:
    """Event handlers for PodGroups.

    Attributes:
        suspension: Buffers the changes; a source delivers one again that fails when it is applied later.
    """

    def __init__(self, queue: SchedulingQueue, suspension: Suspension, freed: FreedCapacity) -> None:
        self._freed = freed
        self._queue = queue
        self._unfinished = set[GroupSource]()
        """Sources whose change an exception interrupted: it must not be skipped when it is delivered again."""
        self.suspension = suspension
        self._run_or_defer = suspension.run_or_defer

    def serve(self, source: GroupSource) -> None:
        """Mark the PodGroups of a source as completely reported: a group that was not reported does not exist."""
        self._run_or_defer(self._serve, source)

    def _serve(self, source: GroupSource) -> None:
        queue = self._queue
        if queue.gangs.unread(source) is not None or source in self._unfinished:
            self._unfinished.add(source)
            queue.gangs.serve(source)
            queue.gang_requeueing.source_changed(source)
            self._unfinished.discard(source)

    def withhold(self, source: GroupSource, reason: str) -> None:
        """Mark the PodGroups of a source as unknown: their members are gated until :meth:`serve` is called.

        Every source is in this state before its first call.
        """
        self._run_or_defer(self._withhold, source, reason)

    def _withhold(self, source: GroupSource, reason: str) -> None:
        queue = self._queue
        if queue.gangs.unread(source) != reason or source in self._unfinished:
            self._unfinished.add(source)
            queue.gangs.withhold(source, reason)
            try:
                queue.gang_requeueing.source_changed(source)
            except Exception:
                # Raised again, and delivered again; until then, no pod of an unread group may stay active.
                try_twice(queue.gang_requeueing.source_changed, source)
                raise
            self._unfinished.discard(source)

    def ignore(self, source: GroupSource) -> None:
        """Ignore the labels and fields of a source; call this before any pod is reported."""
        self._queue.gangs.ignore(source)

    def group_changed(self, group: PodGroup | CompositePodGroup) -> None:
        if isinstance(group, CompositePodGroup):
            self._run_or_defer(self._composite_changed, group)
        else:
            self._run_or_defer(self._group_changed, group)

    def _composite_changed(self, composite: CompositePodGroup) -> None:
        gangs = self._queue.gangs
        with self._change(composite.key) as was_interrupted:
            before = gangs.forest.get(composite.key)
            if before == composite and not was_interrupted:
                return
            if before is not None and before.uid != composite.uid:
                # It was deleted and created again, and the watch did not deliver the deletion.
                self._group_deleted(composite.key)
            changed = gangs.composite_changed(composite)
            for gang in list(gangs) if was_interrupted else changed:
                self._queue.group_changed(gang)
                self._update_nominations(gang)

    def _group_changed(self, group: PodGroup) -> None:
        queue = self._queue
        with self._change(group.key) as was_interrupted:
            known = queue.gangs.get(group.key)
            before = None if known is None else known.group
            if not was_interrupted and (before == group or queue.gangs.run_recorded(group)):
                return
            if before is not None and before.uid != group.uid:
                # It was deleted and created again, and the watch did not deliver the deletion.
                self._group_deleted(group.key)
                before = None
            gang = queue.gangs.group_changed(group)
            queue.group_changed(gang)
            self._update_nominations(gang)
            action = Action.ADD if before is None else Action.UPDATE_OTHER
            queue.on_event(ClusterEvent(Resource.POD_GROUP, action), before, group)

    @contextmanager
    def _change(self, key: GroupKey) -> Iterator[bool]:
        """Apply a change of a group; gate the members below it if that raises. Yield whether the last change raised."""
        gangs = self._queue.gangs
        was_interrupted = key in gangs.interrupted
        # First, because the reviews during the change open the gates.
        gangs.interrupted.discard(key)
        try:
            yield was_interrupted
        except Exception:
            # Raised again, and delivered again; half of the change may be applied until then.
            gangs.interrupted.add(key)
            try_twice(self._gate_below, key)
            raise

    def _gate_below(self, key: GroupKey) -> None:
        for gang in self._queue.gangs.forest.leaves_below(key):
            self._queue.gang_changed(gang)

    def group_deleted(self, key: GroupKey) -> None:
        """Handle a deleted group; its members are gated until it is created again."""
        self._run_or_defer(self._group_deleted, key)

    def _group_deleted(self, key: GroupKey) -> None:
        queue = self._queue
        with self._change(key) as was_interrupted:
            if key.source is GroupSource.COMPOSITE:
                changed = queue.gangs.composite_deleted(key)
            else:
                gang = queue.gangs.group_deleted(key)
                changed = [] if gang is None else [gang]
            for gang in list(queue.gangs) if was_interrupted else changed:
                queue.group_changed(gang)

    def group_refused(self, key: GroupKey, problems: Iterable[Problem]) -> None:
        """Handle an object whose spec is invalid and never was valid: its members are gated with the reason."""
        self._run_or_defer(self._group_refused, key, "; ".join(map(str, problems)))

    def _group_refused(self, key: GroupKey, reason: str) -> None:
        for gang in self._queue.gangs.group_refused(key, reason):
            self._queue.group_changed(gang)

    def _update_nominations(self, gang: Gang) -> None:
        """Let nominations of members count by the present priority of their group; report what a lower one frees."""
        queue = self._queue
        for uid in list(gang.pods):
            queued, before = queue.find(uid), queue.nominator.nomination_of(uid)
            if queued is None or before is None:
                continue
            node_name = queue.nominator.node_of(uid)
            queue.nominator.nominate(queued.info, node_name)
            after = queue.nominator.nomination_of(uid)
            if after is not None and after.priority < before.priority:
                self._freed.nomination_ended(before, node_name)
