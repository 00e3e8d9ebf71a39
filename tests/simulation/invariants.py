"""Checks what must hold at every moment, and what must hold when nothing happens any more."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_core.model.pod import Pod
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.cluster_cache import Placement
from tests.simulation.api_server import NODES, PODS, ApiServer
from tests.simulation.cache_comparison import cache_differences
from tests.simulation.fresh_opinion import FreshOpinion
from tests.simulation.network import Network
from tests.simulation.node_rooms import NodeRooms
from tests.simulation.operator_life import SETTLE_SECONDS, OperatorLife
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.plain_fit import requests_of
from tests.simulation.pod_groups import PodGroups

# The scheduler checks every 5 s, and a check takes a while on a slow processor.
_LOOK_SECONDS = 10.0
_IN_FLIGHT, _PARKED, _ACTIVE, _GATED = "inFlight", "parked", "active", "gated"


def all_places(queue: SchedulingQueue) -> dict[str, list[str]]:
    """Return the places of every pod in the queue, by UID."""
    found: dict[str, list[str]] = {}
    for place, pod in queue.readings.places():
        found.setdefault(pod.uid, []).append(place)
    return found


def check_now(supervisor: OperatorSupervisor, network: Network, server: ApiServer) -> Iterator[str]:
    """Yield the problems of this moment, between two cycles."""
    yield from supervisor.complaints
    supervisor.complaints.clear()
    for uid in network.twice:
        yield f"two binds of {uid} are on their way at once"
    network.twice.clear()
    life = supervisor.life
    if life.is_over or not life.is_scheduling:
        return
    if life.fault:
        yield f"the scheduler's loop has ended: {life.fault}"
        return
    for path, informer in life.informers:
        if informer.sink_errors:
            yield f"the feed of {path} raised {informer.sink_errors} times"
    yield from _misplaced(life, server)
    now = network.loop.virtual_now
    if life.scheduler.context.suspension.is_awaited:
        # What was read takes effect after the cycle that waits for an extender; the cycle of a gang may take a minute.
        life.reads_delayed_until = now
    if now - max(network.reads_failed_until, life.reads_delayed_until) > _LOOK_SECONDS:
        yield from _unsettled(life, now - SETTLE_SECONDS - _LOOK_SECONDS)


def _unsettled(life: OperatorLife, before: float) -> Iterator[str]:
    """Yield pods that were bound long ago, that no watch has confirmed, and that were not read either."""
    for uid in life.ledger.unconfirmed_since(before):
        placed = life.scheduler.context.cache.get(uid)
        if placed is not None and placed.placement is not Placement.ADDED:
            yield f"{uid} is assumed on {placed.info.node_name}, and nobody has read it"


def _misplaced(life: OperatorLife, server: ApiServer) -> Iterator[str]:
    context = life.scheduler.context
    queue, cache = context.queue, context.cache
    places = all_places(queue)
    known = {pod.metadata.uid: pod for pod in life.received.pods.values()}
    for uid, where in places.items():
        pod = known.get(uid)
        if len(where) > 1:
            yield f"{uid} is in {len(where)} places at once: {', '.join(where)}"
        elif pod is not None and (pod.spec.node_name or pod.is_terminal):
            yield f"{uid} is bound or has ended, and is {where[0]} in the queue"
    for node_name in queue.nominator.nodes():
        for info in queue.nominator.nominated_pods(node_name):
            if places.get(info.uid) == [_PARKED]:
                yield f"{info.uid} is parked, and is nominated to {node_name}"
    for uid, pod in known.items():
        if pod.spec.node_name or pod.is_terminal or pod.metadata.deletion_timestamp is not None:
            continue
        placed = cache.get(uid)
        if uid not in places and placed is None and _waits_on(server, pod):
            yield f"{uid} waits, and is nowhere in the queue"
        is_tried = context.suspension.is_on and places.get(uid) in ([_PARKED], [_ACTIVE], [_GATED])
        if uid in places and placed is not None and places[uid] != [_IN_FLIGHT] and not is_tried:
            # A gang's cycle that waits for an extender continues when its profile is removed, live again or edited.
            yield f"{uid} is held on {placed.info.node_name}, and is {places[uid][0]} in the queue"
    for waiting in context.waiting:
        if waiting.pod.uid in known and waiting.pod.uid not in places and cache.get(waiting.pod.uid) is None:
            yield f"{waiting.pod.uid} waits at Permit for nothing"


def _waits_on(server: ApiServer, pod: Pod) -> bool:
    """Return whether a pod waits on the server, too; a pod may be read before its watch delivers it."""
    now = server.pod(pod.metadata.name)
    return now is not None and now.metadata.uid == pod.metadata.uid and not now.spec.node_name and not now.is_terminal


def check_bind(server: ApiServer, rooms: NodeRooms, pod: Pod, ours: dict[str, str], since: float) -> Iterator[str]:
    """Yield the problems of a bind that the present life of the operator has just performed.

    Only what the operator itself has bound is counted: it may not have received anything else yet. The node counts with
    its largest size at any time after ``since``, for then it was chosen.
    """
    name = pod.spec.node_name
    largest = rooms.largest(name, since)
    there = [other for other in server.pods() if ours.get(other.metadata.uid) == name and not other.is_terminal]
    for what, index in (("milli-CPU", 0), ("MiB", 1)):
        taken = sum(requests_of(other)[index] for other in there)
        if requests_of(pod)[index] and taken > largest[index]:
            names = ", ".join(other.metadata.uid for other in there)
            yield f"{name} is overcommitted by us: {taken} of {largest[index]} {what} for {names}"
    if len(there) > largest[2]:
        yield f"{name} is overcommitted by us: {len(there)} pods"


def check_at_rest(supervisor: OperatorSupervisor, server: ApiServer, groups: PodGroups) -> Iterator[str]:
    """Yield the problems when nothing has happened for long."""
    life = supervisor.life
    context = life.scheduler.context
    if not life.is_scheduling:
        yield "the operator has not begun to schedule"
        return
    for waiting in context.waiting:
        yield f"{waiting.pod.uid} waits at Permit forever"
    for instance in life.instances:
        if instance.in_flight:
            yield f"profile {instance.name}, revision {instance.revision} has {instance.in_flight} attempts in flight"
    if context.queue._in_flight.event_count or len(context.queue._in_flight):
        yield "events are kept for attempts that have ended"
    for uid in life.ledger.open_reservations():
        yield f"{uid} is reserved on {life.ledger.holds[uid].node_name} for ever"
    for placed in context.cache.placed_pods():
        if placed.placement is not Placement.ADDED:
            yield f"{placed.info.uid} is assumed on {placed.info.node_name} forever"
    if life.queued_writes:
        yield f"{life.queued_writes} writes stay queued forever"
    yield from _known_differs(life, server)
    fresh = FreshOpinion(supervisor, server, groups)
    yield from cache_differences(context, fresh.context)
    yield from fresh.left_waiting()
    yield from fresh.gangs_left_waiting()


def _known_differs(life: OperatorLife, server: ApiServer) -> Iterator[str]:
    for path, informer in ((PODS, life.informers.pods), (NODES, life.informers.nodes)):
        known = {each.metadata.name: each.metadata.resource_version for each in informer.known.values()}
        there = {name: each.metadata.resource_version for name, each in server.collection(path).objects.items()}
        if known != there:
            yield f"the informer of {path} does not know what the server has"
