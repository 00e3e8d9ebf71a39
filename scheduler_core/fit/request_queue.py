"""The scheduling queue of one request: it gates, groups and orders the pods as the queue of the scheduler would.

Groups of the cluster that the pods name are copied with their members, so that members which wait for the others are
placed with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from scheduler_core.config.gang_owners import OwnerInstance
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import Problem
from scheduler_core.feeds.pod_group_feed import GroupFeed
from scheduler_core.fit.requests import FitRequest
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Status
from scheduler_core.gangs.held_room import WORKLOAD_LABEL
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.pod_info import PodInfo


class _PreviewRules(QueueingRules):
    """Rules whose gates have no effect; no event requeues a pod."""

    def gate(self, pod: QueuedPod) -> Status:
        return self.preview_gate(pod)


def _rules_of(instance: FrameworkInstance) -> QueueingRules:
    return _PreviewRules(instance.pre_enqueue, {}, instance.queue_sort.sort_key, places_gangs=instance.places_gangs)


class RequestQueue:
    """The queue of one trial.

    Args:
        live: The queue of the scheduler, which is only read.

    Attributes:
        queue: The queue; nothing is nominated there.
        freed: Reports to it what is freed.
    """

    def __init__(
        self, live: SchedulingQueue, profiles: ProfileTable, reservations: GangReservations, clock: Clock
    ) -> None:
        self._live = live
        self._rules: dict[str, QueueingRules] = {each.name: _rules_of(each) for each in profiles}
        self.queue = SchedulingQueue(self._rules.get, clock, foreign_gangs=live.gangs.foreign_gangs)
        self.freed = FreedCapacity(self.queue, reservations)
        self.queue.gangs.read_as(live.gangs)

    def add(self, request: FitRequest, infos: Sequence[PodInfo]) -> None:
        """Add the groups of a request, the groups of the cluster that it names, and its pods.

        Args:
            infos: The compiled pods of the request, in their order.
        """
        feed = GroupFeed(self.queue, Suspension(), self.freed)
        own = {group.key: group for group in request.groups}
        known = self._named(request.pods, own)
        for group in [*known.values(), *own.values()]:
            feed.group_changed(group)
        # The pods of an admitted workload that wait already are among those of the request.
        held = {label for pod in request.pods if (label := pod.metadata.labels.get(WORKLOAD_LABEL))}
        for gang in self._gangs_of(known.keys() | own.keys()):
            self._add_members(gang, held)
        queue = self.queue
        # All are seen before the first is added, so that the run of a gang is inferred once.
        joined = (queue.gangs.saw(info.pod) for info in infos)
        gangs = {gang.key: gang for gang in joined if gang is not None}
        for info in infos:
            if queue.find(info.uid) is None:
                # A member that waits was added with its gang.
                queue.add(info)
        for each in gangs.values():
            refusal = "" if each.owner is None else _refusal(each.owner, request)
            if refusal and each.group is None:
                # The operator creates no PodGroup, and the pods wait for it.
                feed.group_refused(each.key, [Problem("", refusal)])
            elif each.owner is not None and each.group is None:
                feed.group_changed(_group_of_owner(each, each.owner))
            elif each.owner is not None and each.group is not None and held:
                # Its size is that of the last admission until the owner is resumed with its present one.
                feed.group_changed(replace(each.group, min_member=min(each.group.min_member, len(each.pods))))
            queue.gang_changed(each)

    def _named(
        self, pods: Iterable[Pod], own: Mapping[GroupKey, PodGroup | CompositePodGroup]
    ) -> dict[GroupKey, PodGroup | CompositePodGroup]:
        found: dict[GroupKey, PodGroup | CompositePodGroup] = {}
        keys = {key for pod in pods if (key := self.queue.gangs.key_of(pod)) is not None} | own.keys()
        for key in sorted(keys):
            chain: dict[GroupKey, None] = {}
            current: GroupKey | None = key
            while current is not None and current not in chain:
                chain[current] = None
                current = self._parent(current, own)
            root = next(reversed(chain))
            for each in (*chain, *(self._below(root) if root.source is GroupSource.COMPOSITE else ())):
                group = self._live_group(each)
                if group is not None and each not in own:
                    found[each] = group
        return found

    def _below(self, root: GroupKey) -> list[GroupKey]:
        forest, found, left = self._live.gangs.forest, list[GroupKey](), [root]
        while left:
            children = forest.children(left.pop())
            found += children
            left += (each for each in children if each.source is GroupSource.COMPOSITE)
        return found

    def _parent(self, key: GroupKey, own: Mapping[GroupKey, PodGroup | CompositePodGroup]) -> GroupKey | None:
        group = own.get(key)
        return self._live.gangs.forest.parent_of(key) if group is None else group.parent_key

    def _live_group(self, key: GroupKey) -> PodGroup | CompositePodGroup | None:
        live = self._live.gangs
        if key.source is GroupSource.COMPOSITE:
            return live.forest.get(key)
        gang = live.get(key)
        return None if gang is None else gang.group

    def _gangs_of(self, keys: Iterable[GroupKey]) -> list[Gang]:
        live = self._live.gangs
        gangs = (live.get(key) for key in sorted(keys) if key.source is not GroupSource.COMPOSITE)
        return [gang for gang in gangs if gang is not None]

    def _add_members(self, gang: Gang, held: Collection[str]) -> None:
        """Add the members of a gang of the cluster in the states that they are in, but no waiting ones of *held*."""
        queue = self.queue
        waiting_pods = [
            each for each in gang.waiting.values() if each.info.pod.metadata.labels.get(WORKLOAD_LABEL) not in held
        ]
        left_out = gang.waiting.keys() - {each.uid for each in waiting_pods}
        for uid, pod in gang.pods.items():
            if uid in left_out:
                continue
            queue.gangs.saw(pod)
            if uid in gang.placed:
                queue.gangs.assumed(uid)
        copied = queue.gangs.get(gang.key)
        if copied is not None:
            queue.gang_changed(copied)
        for waiting in sorted(waiting_pods, key=lambda pod: pod.sequence):
            queue.add(waiting.info)


def _refusal(owner: OwnerInstance, request: FitRequest) -> str:
    """Return why the pods of an owner cannot be one gang; "" if they may, or if they are several gangs."""
    return request.no_gangs.get(str(owner), "") if owner.rule.sizing in ("JobSet", "LeaderWorkerSet") else ""


def _group_of_owner(gang: Gang, owner: OwnerInstance) -> PodGroup:
    """Return the PodGroup that the operator creates for an owner; the request has all pods of the owner."""
    rule, size = owner.rule, len(gang.pods)
    topology = rule.topology
    return PodGroup(
        gang.key,
        f"fit/{gang.key}",
        size,
        topology=None if topology is None else GroupTopology(topology.key, is_required=topology.mode == "Required"),
        is_strict=rule.queueing == "Strict",
        # The operator creates no object for one pod.
        is_basic=size == 1,
    )
