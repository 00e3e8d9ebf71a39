"""Checks the core's gangs at every moment, and when nothing happens any more.

The checks compare with the API server's state and with what the core has received. What must hold at the moment of a
placement or a bind is checked in :mod:`tests.simulation.gang_account`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler_core.framework.queued_pod import Place
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, group_key_of
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from tests.simulation.api_server import ApiServer
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.pod_groups import PodGroups, ReceivedGroups

_QUEUED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF, Place.UNSCHEDULABLE, Place.IN_FLIGHT)


def check_gangs_now(supervisor: OperatorSupervisor) -> Iterator[str]:
    """Yield the problems of this moment, between two cycles."""
    life = supervisor.life
    if life.is_over or not life.is_scheduling:
        return
    context = life.scheduler.context
    known = {pod.metadata.uid: pod for pod in life.received.pods.values()}
    for gang in context.queue.gangs:
        if gang.group != life.received_groups.groups.get(gang.key):
            yield f"gang {gang.key} has another PodGroup than the scheduler received"
        yield from _inherited(gang, life.received_groups)
        yield from _entry_problems(gang, context.queue)
        yield from _differs(gang, "gated members", gang.gates, _gated(gang, context.queue))
        for uid in sorted(gang.placed):
            received = known.get(uid)
            if received is not None and not received.spec.node_name and context.cache.get(uid) is None:
                yield f"{uid} counts as placed in gang {gang.key}, and has no node"
        for uid, waiting in gang.waiting.items():
            if waiting.place is not Place.GROUPED:
                yield f"{uid} waits with gang {gang.key}, and is {waiting.place.label} in the queue"


def _gated(gang: Gang, queue: SchedulingQueue) -> list[str]:
    """Return the members that PreEnqueue plugins gate, by their places in the queue."""
    queued = (queue.find(uid) for uid in gang.pods)
    return [pod.uid for pod in queued if pod and pod.place is Place.GATED and pod.gated_by != GANG_SCHEDULING]


def _inherited(gang: Gang, received: ReceivedGroups) -> Iterator[str]:
    """Yield state that a PodGroup has inherited from an earlier one of its name."""
    if gang.group is None or gang.key not in received.begun:
        return
    seconds, when = received.begun[gang.key]
    if gang.first_failure is not None and gang.first_failure < seconds:
        yield f"gang {gang.key} failed before its PodGroup {gang.group.uid} existed"
    if gang.last_attempt is not None and gang.last_attempt < when:
        yield f"gang {gang.key} was tried before its PodGroup {gang.group.uid} existed"


def _entry_problems(gang: Gang, queue: SchedulingQueue) -> Iterator[str]:
    """Check that a gang whose quorum waits is in the queue once, and another one is not."""
    entry = gang.entry
    is_queued = entry is not None and entry.place is not Place.NOWHERE
    is_live = entry is not None and entry.place in (*_QUEUED, Place.GATED)
    holds = gang.group is not None and gang.group.waits_for_gated and bool(_gated(gang, queue))
    should = gang.group is not None and gang.needed > 0 and gang.has_quorum and not gang.binding and not holds
    if should and not is_live:
        where = "nowhere" if entry is None else entry.place.label
        yield f"gang {gang.key} has its quorum waiting, and is {where} in the queue"
    if is_queued and entry is not None:
        if not should and entry.place is not Place.IN_FLIGHT:
            yield f"gang {gang.key} has no quorum waiting, and is {entry.place.label} in the queue"
        if queue.find(entry.uid) is not entry:
            yield f"gang {gang.key} has an entry that the queue does not know"


def check_gangs_at_rest(supervisor: OperatorSupervisor, server: ApiServer, groups: PodGroups) -> Iterator[str]:
    """Yield the problems when nothing has happened for long."""
    if not supervisor.life.is_scheduling:
        return
    queue = supervisor.life.scheduler.context.queue
    members: dict[GroupKey, list[Pod]] = {}
    for pod in server.pods():
        key = group_key_of(pod)
        if key is not None:
            members.setdefault(key, []).append(pod)
    kept = {gang.key: gang for gang in queue.gangs}
    for key in sorted({*kept, *members, *groups.objects}):
        gang, pods, group = kept.get(key), members.get(key, []), groups.objects.get(key)
        if gang is None:
            yield f"gang {key} is not known"
        elif group is None and not pods:
            yield f"gang {key} is kept, and neither it nor a member exists"
        else:
            if gang.group != group:
                yield f"gang {key} has another PodGroup than the server"
            yield from _count_problems(gang, pods)
            yield from _waiting_problems(gang, pods, queue)


def _count_problems(gang: Gang, pods: Iterable[Pod]) -> Iterator[str]:
    there = list(pods)
    alive = [pod for pod in there if not pod.is_terminal and pod.metadata.deletion_timestamp is None]
    yield from _differs(gang, "members", gang.pods, (pod.metadata.uid for pod in there))
    placed = (pod.metadata.uid for pod in alive if pod.spec.node_name)
    yield from _differs(gang, "placed members", gang.placed, placed)
    succeeded = (pod.metadata.uid for pod in there if pod.status.phase == "Succeeded")
    yield from _differs(gang, "succeeded members", gang.succeeded, succeeded)
    there_are = len(gang.placed) + len(gang.succeeded)
    if gang.group is not None and gang.needed != max(0, gang.group.min_member - there_are):
        yield f"gang {gang.key} looks for {gang.needed} members, {there_are} of {gang.group.min_member} are there"
    if gang.binding:
        yield f"gang {gang.key} has {gang.binding} members being bound for ever"


def _waiting_problems(gang: Gang, pods: Iterable[Pod], queue: SchedulingQueue) -> Iterator[str]:
    """Check that all ungated members wait with a gang that lacks members or is held back, and none with another one."""
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


def _differs(gang: Gang, what: str, kept: Iterable[str], true: Iterable[str]) -> Iterator[str]:
    mine, theirs = set(kept), set(true)
    if mine != theirs:
        more, fewer = sorted(mine - theirs), sorted(theirs - mine)
        yield f"the {what} of gang {gang.key} are not the server's: {more} too many, {fewer} missing"
