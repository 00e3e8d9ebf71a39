"""Gangs as plugins may see them; see :mod:`scheduler_core.framework.group_view`.

Owns the joining of what three parts know of a member: the gangs (that it exists), the cache (its node) and the queue
(that it waits). Must not know what plugins make of it. A member counts by its UID: one that was replaced under the same
name is another.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.cycle.context import CycleContext
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.queueing.gang import Gang
from scheduler_core.snapshot.pod_info import PodInfo


class GangView:
    """One gang."""

    __slots__ = ("_context", "_gang")

    def __init__(self, gang: Gang, context: CycleContext) -> None:
        self._gang = gang
        self._context = context

    @property
    def key(self) -> GroupKey:
        """Which group."""
        return self._gang.key

    @property
    def group(self) -> PodGroup | None:
        """What the PodGroup object asks for; None while there is none."""
        return self._gang.group

    @property
    def since(self) -> float:
        """When it was first seen, in the clock's seconds."""
        return self._gang.since

    @property
    def known(self) -> int:
        """How many members exist, whatever became of them."""
        return len(self._gang.pods)

    @property
    def succeeded(self) -> int:
        """How many members have ended well."""
        return len(self._gang.succeeded)

    def members(self) -> Sequence[Pod]:
        """The members that exist, have not ended and are not being deleted."""
        return [pod for pod in self._gang.pods.values() if _counts(pod)]

    def assigned(self) -> Sequence[PodInfo]:
        """Those of them that have a node."""
        pods, cache = self._gang.pods, self._context.cache
        found = []
        for uid in self._gang.placed:
            pod, placed = pods.get(uid), cache.get(uid)
            if pod is not None and placed is not None and _counts(pod):
                found.append(placed.info)
        return found

    def waiting(self) -> Sequence[PodInfo]:
        """Those of them that are in the queue or in flight without a node."""
        queue, placed = self._context.queue, self._gang.placed
        found = []
        for uid, pod in self._gang.pods.items():
            queued = queue.find(uid) if uid not in placed and _counts(pod) else None
            if queued is not None:
                found.append(queued.info)
        return found


class GangViews:
    """All gangs."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context

    def group_of(self, pod: Pod) -> GangView | None:
        """The group that a pod belongs to; None for none, or where the API that it names is ignored."""
        gangs = self._context.queue.gangs
        gang = gangs.of_uid(pod.metadata.uid)
        if gang is not None:
            return GangView(gang, self._context)
        key = gangs.key_of(pod)
        return None if key is None else self.get(key)

    def get(self, key: GroupKey) -> GangView | None:
        """The group of this key; None if neither it nor any member exists."""
        gang = self._context.queue.gangs.get(key)
        return None if gang is None else GangView(gang, self._context)

    def disrupted_whole(self) -> Sequence[GangView]:
        """The groups with placed members of which a preemption takes all or none."""
        gangs = self._context.queue.gangs
        return [
            GangView(gang, self._context)
            for gang in gangs
            if gang.placed and gang.group is not None and gang.group.disrupts_whole
        ]

    def ranked(self) -> Sequence[GangView]:
        """The groups with placed members that have a priority of their own."""
        gangs = self._context.queue.gangs
        return [
            GangView(gang, self._context)
            for gang in gangs
            if gang.placed and gang.group is not None and gang.group.priority is not None
        ]


def _counts(pod: Pod) -> bool:
    """Whether a member is there to stay: it has not ended and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and not pod.is_terminal
