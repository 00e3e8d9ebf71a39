"""Invariants of the core's gangs, at every moment and when nothing changes any more.

The checks compare with the API server's state and with what the core has received. :mod:`tests.simulation.gang_checks`
checks each decision and each bind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from tests.simulation.api_server import ApiServer
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.pod_groups import PodGroups, ReceivedGroups
from tests.simulation.profiles import gang_key
from tests.support.presence import present

_QUEUED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.UNSCHEDULABLE, Place.IN_FLIGHT)


def check_gangs_now(supervisor: OperatorSupervisor) -> Iterator[str]:
    """Yield the problems at this moment, between two cycles."""
    process = supervisor.process
    if process.is_over or not process.is_scheduling:
        return
    if process.has_unhandled_changes:
        # A change that raised has taken part of its effect.
        return
    context = process.scheduler.context
    yield from present(process.ledger.gangs).healing.now()
    known = {pod.metadata.uid: pod for pod in process.received.pods.values()}
    for gang in context.queue.gangs:
        if gang.key in context.queue._gang_entries._faulty:
            # The next flush reviews it.
            continue
        if gang.group != process.received_groups.groups.get(gang.key):
            yield f"gang {gang.key} has another PodGroup than the scheduler received"
        yield from _inherited(gang, process.received_groups)
        yield from gang_entry_problems(gang, context.queue)
        yield from _differs(gang, "gated members", gang.gates, _gated(gang, context.queue))
        for uid in sorted(gang.placed):
            received = known.get(uid)
            if received is not None and not received.spec.node_name and context.cache.get(uid) is None:
                yield f"{uid} counts as placed in gang {gang.key}, and has no node"
        for uid, waiting in gang.waiting.items():
            if waiting.place is not Place.GROUPED:
                yield f"{uid} waits with gang {gang.key}, and is {waiting.place.label} in the queue"


def _gated(gang: Gang, queue: SchedulingQueue) -> list[str]:
    """Return the UIDs of members that PreEnqueue plugins gate, by their places in the queue."""
    queued = (queue.find(uid) for uid in gang.pods)
    return [pod.uid for pod in queued if pod and pod.place is Place.GATED and pod.gated_by != GANG_SCHEDULING]


def _inherited(gang: Gang, received: ReceivedGroups) -> Iterator[str]:
    """Yield state that a PodGroup has inherited from a deleted one of the same name."""
    if gang.group is None or gang.key not in received.received_at:
        return
    seconds, when = received.received_at[gang.key]
    if gang.first_failure is not None and gang.first_failure < seconds:
        yield f"gang {gang.key} failed before its PodGroup {gang.group.uid} existed"
    if gang.last_attempt is not None and gang.last_attempt < when:
        yield f"gang {gang.key} was tried before its PodGroup {gang.group.uid} existed"


def gang_entry_problems(gang: Gang, queue: SchedulingQueue) -> Iterator[str]:
    """Yield problems of a gang's queue entry: it exists if and only if the gang's quorum waits."""
    entry = gang.entry
    is_live = entry is not None and entry.place in (*_QUEUED, Place.GATED)
    holds = gang.group is not None and gang.group.waits_for_gated and bool(_gated(gang, queue))
    should = gang.group is not None and gang.needed > 0 and gang.has_quorum and not gang.binding and not holds
    # Until then, the waiting members of a deleted profile are not parked.
    if should and not is_live and not queue.pending.moves:
        where = "none" if entry is None else entry.place.label
        yield f"gang {gang.key} has a waiting quorum, and its queue place is {where}"
    yield from entry_problems(f"gang {gang.key}", entry, queue, should=should)


def entry_problems(name: str, entry: QueuedPod | None, queue: SchedulingQueue, *, should: bool) -> Iterator[str]:
    """Yield problems of the queue entry of a gang or tree, which exists if it should."""
    if entry is None or entry.place is Place.NOWHERE:
        return
    if not should and entry.place is not Place.IN_FLIGHT:
        yield f"{name} has no waiting quorum, and its queue place is {entry.place.label}"
    if queue.find(entry.uid) is not entry:
        yield f"{name} has an entry that is not in the queue"


def check_idle_gangs(supervisor: OperatorSupervisor, server: ApiServer, groups: PodGroups) -> Iterator[str]:
    """Yield the problems after a long time without changes."""
    if not supervisor.process.is_scheduling:
        return
    queue = supervisor.process.scheduler.context.queue
    members: dict[GroupKey, list[Pod]] = {}
    for pod in server.pods():
        key = gang_key(pod)
        if key is not None:
            members.setdefault(key, []).append(pod)
    stored = {gang.key: gang for gang in queue.gangs}
    for key in sorted({*stored, *members, *groups.objects}):
        gang, pods, group = stored.get(key), members.get(key, []), groups.objects.get(key)
        if gang is None:
            yield f"gang {key} is not stored"
        elif group is None and not pods:
            yield f"gang {key} is stored, and neither its group nor a member exists"
        else:
            if gang.group != group:
                yield f"gang {key} has another PodGroup than the API server"
            yield from _count_problems(gang, pods)
            yield from _waiting_problems(gang, pods, queue)


def _count_problems(gang: Gang, pods: Iterable[Pod]) -> Iterator[str]:
    there = list(pods)
    alive = [pod for pod in there if not pod.is_terminal and pod.metadata.deletion_timestamp is None]
    yield from _differs(gang, "members", gang.pods, (pod.metadata.uid for pod in there))
    placed = (pod.metadata.uid for pod in alive if pod.spec.node_name)
    yield from _differs(gang, "placed members", gang.placed, placed)
    counted = len(gang.placed) + gang.succeeded
    if gang.group is not None and gang.needed != max(0, gang.group.min_member - counted):
        yield f"gang {gang.key} needs {gang.needed} more members, and has {counted} of {gang.group.min_member}"
    if gang.binding:
        yield f"gang {gang.key} has {gang.binding} members being bound forever"


def _waiting_problems(gang: Gang, pods: Iterable[Pod], queue: SchedulingQueue) -> Iterator[str]:
    """Yield problems of waiting members: ungated members wait together while their gang lacks members or is gated."""
    is_lacking = gang.group is None or gang.needed > 0 or (gang.group.waits_for_gated and bool(_gated(gang, queue)))
    if gang.tree is not None:
        is_lacking = not gang.is_one_by_one
    waiting = []
    for pod in pods:
        if pod.spec.node_name or pod.is_terminal or pod.metadata.deletion_timestamp is not None:
            continue
        queued = queue.find(pod.metadata.uid)
        if queued is not None and is_lacking and not queued.gated_by and not pod.spec.scheduling_gates:
            waiting.append(pod.metadata.uid)
    yield from _differs(gang, "waiting members", gang.waiting, waiting)


def _differs(gang: Gang, what: str, stored: Iterable[str], true: Iterable[str]) -> Iterator[str]:
    ours, expected = set(stored), set(true)
    if ours != expected:
        more, fewer = sorted(ours - expected), sorted(expected - ours)
        yield f"the {what} of gang {gang.key} differ from the API server's: {more} too many, {fewer} missing"
