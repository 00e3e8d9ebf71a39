"""Decides the pod of a conformance case twice: as a single pod, and as the only member of a gang."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bayplan.settings.feature_gates import FeatureGates, with_gates
from msgspec.structs import replace

from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import Scheduler
from scheduler_core.scheduler_options import SchedulerOptions, SchedulerPorts
from tests.parity.conformance.attempt import scheduler_of
from tests.parity.conformance.cases import Case
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

LABEL = POD_GROUP_LABELS[GroupSource.BAYPLAN]
_GROUP = "one"
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Decision:
    """What one cycle did.

    Attributes:
        node: The node on which the pod is assumed; "" for none.
        bound: The node to which it was bound; "" for none.
        nominated: The nominated node afterwards; "" for none.
        victims: Names of the pods that were evicted, sorted.
        withdrawn: Names of the pods whose nomination was cleared, sorted.
        claim_calls: Calls that wrote claims.
        condition: Reason and message of the PodScheduled condition; empty for none.
        events: Reasons of the events of the pod, in order.
        place: The place of the queue in which the pod, or its gang, is.
        rejected_by: The plugins that rejected it.
        pending_on: Those of them that returned Pending.
    """

    node: str
    bound: str
    nominated: str
    victims: tuple[str, ...]
    withdrawn: tuple[str, ...]
    claim_calls: tuple[str, ...]
    condition: tuple[str, str]
    events: tuple[str, ...]
    place: str
    rejected_by: frozenset[str]
    pending_on: frozenset[str]


async def decide(case: Case, *, in_gang: bool) -> Decision | None:
    """Run one cycle and the binding cycle after it; None if the pod is gated or cannot be read.

    Args:
        case: The case; its time is that of the test's clock.
        in_gang: Whether the pod is the only member of a gang.
    """
    world = _World(case)
    pod = world.pod(in_gang=in_gang)
    entry = world.pop(pod)
    if entry is None:
        world.close()
        return None
    return await world.run(entry, pod)


class _World:
    def __init__(self, case: Case) -> None:
        self._case = case
        self._writer, self._claims = RecordingWriter(), RecordingClaimWriter()
        for claim in case.resourceclaims:
            self._claims.claims[claim.key] = claim
        options = with_gates(SchedulerOptions(), FeatureGates(case.feature_gates))
        registry, defaults = in_tree_registry(), default_plugins()
        clock = VirtualClock()
        scheduler = Scheduler(
            clock, self._writer, options, registry, defaults, ports=SchedulerPorts(claims=self._claims)
        )
        self.scheduler = scheduler_of(case, scheduler, registry, defaults)

    def pod(self, *, in_gang: bool) -> Pod:
        pod = self._case.pod
        if not in_gang:
            return pod
        meta = pod.metadata
        feed, key = self.scheduler.group_feed, GroupKey(GroupSource.BAYPLAN, meta.namespace, _GROUP)
        feed.serve(GroupSource.BAYPLAN)
        feed.group_changed(PodGroup(key, "uid-of-the-group", 1, generation=1))
        return replace(pod, metadata=replace(meta, labels={**meta.labels, LABEL: _GROUP}))

    def pop(self, pod: Pod) -> QueuedPod | None:
        """Return the entry of the pod; the other pending pods stay in flight without an attempt."""
        queue, uid = self.scheduler.context.queue, pod.metadata.uid
        while queue.pop() is not None:
            pass
        self.scheduler.feed.pod_added(pod)
        entry = queue.pop()
        if entry is None or (entry.uid != uid and not isinstance(entry, QueuedGang)):
            return None
        return entry

    async def run(self, entry: QueuedPod, pod: Pod) -> Decision:
        scheduler, uid = self.scheduler, pod.metadata.uid
        context, writer = scheduler.context, self._writer
        attempts = []
        if isinstance(entry, QueuedGang):
            attempts = await scheduler.cycles.gangs.schedule(entry)
        elif (attempt := scheduler.cycles.pods.schedule(entry)) is not None:
            attempts = [attempt]
        node = "".join(attempt.node_name for attempt in attempts)
        binds = [asyncio.ensure_future(scheduler.cycles.binding.bind(attempt)) for attempt in attempts]
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        conditions = [each.condition for each in writer.patches if each.uid == uid and each.condition is not None]
        withdrawn = [each.name for each in writer.patches if each.uid != uid and each.nominated_node_name == ""]
        queued = context.queue.find(uid)
        shown = entry if isinstance(entry, QueuedGang) and queued is not None and queued.group is not None else queued
        found = Decision(
            node,
            "".join(each.node_name for each in writer.bindings),
            context.queue.nominator.node_of(uid),
            tuple(sorted(each.name for each in writer.deletions)),
            tuple(sorted(withdrawn)),
            tuple(self._claims.calls),
            (conditions[-1].reason, conditions[-1].message) if conditions else ("", ""),
            tuple(each.reason for each in writer.events if each.regarding.uid == uid),
            "" if shown is None else shown.place.label,
            frozenset() if shown is None else shown.rejected_by,
            frozenset() if shown is None else shown.pending_on,
        )
        for bind in binds:
            # PreBind may wait for volumes and drivers, which no case has.
            bind.cancel()
        await asyncio.gather(*binds, return_exceptions=True)
        self.close()
        return found

    def close(self) -> None:
        for instance in self.scheduler.context.profiles:
            instance.retire()
        self.scheduler.context.queue.close()
