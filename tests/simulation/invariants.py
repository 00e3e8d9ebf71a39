"""Invariants that hold at every moment, and invariants that hold when nothing changes any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scheduler_core.framework.queued_pod import Place
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.cluster_cache import PodState
from tests.simulation.api_server import NODES, PODS, ApiServer
from tests.simulation.cache_comparison import cache_differences
from tests.simulation.fresh_scheduler import FreshScheduler
from tests.simulation.network import Network
from tests.simulation.node_capacities import NodeCapacities
from tests.simulation.operator_process import SETTLE_SECONDS, OperatorProcess
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.plain_fit import requests_of
from tests.simulation.pod_groups import PodGroups

# The scheduler reads unconfirmed pods every 5 s, and a read takes a while on a slow processor.
_READ_DEADLINE_SECONDS = 10.0
_IN_FLIGHT, _PARKED, _ACTIVE, _GATED, _FAULTY = "inFlight", "parked", "active", "gated", "errorBackoff"


def all_places(queue: SchedulingQueue) -> dict[str, list[str]]:
    """Return the queue places of each pod, by UID."""
    found: dict[str, list[str]] = {}
    for place, pod in queue.readings.places():
        found.setdefault(pod.uid, []).append(place)
    return found


def check_now(
    supervisor: OperatorSupervisor, network: Network, server: ApiServer, *, may_feeds_raise: bool = False
) -> Iterator[str]:
    """Yield the problems at this moment, between two cycles.

    Args:
        supervisor: Starts and stops the operator.
        may_feeds_raise: Whether exceptions are injected: what a feed did not handle is delivered again soon.
    """
    yield from supervisor.problems
    supervisor.problems.clear()
    for uid in network.double_binds:
        yield f"a second bind of {uid} was sent while the first was in progress"
    network.double_binds.clear()
    process = supervisor.process
    if process.is_over or not process.is_scheduling:
        return
    if process.fault:
        yield f"the scheduler's loop has ended: {process.fault}"
        return
    if may_feeds_raise and process.has_unhandled_changes:
        return
    for path, informer in process.informers:
        if informer.sink_errors and not may_feeds_raise:
            yield f"the feed of {path} raised {informer.sink_errors} times"
    yield from _queue_problems(process, server, may_moves_raise=may_feeds_raise)
    now = network.loop.virtual_now
    if process.scheduler.context.suspension.waiting_tasks:
        # Reads take effect after the cycle that waits for an extender; the cycle of a gang may take a minute.
        process.reads_delayed_until = now
    if now - max(network.reads_failed_until, process.reads_delayed_until) > _READ_DEADLINE_SECONDS:
        yield from _unconfirmed(process, now - SETTLE_SECONDS - _READ_DEADLINE_SECONDS)


def _unconfirmed(process: OperatorProcess, before: float) -> Iterator[str]:
    """Yield pods that were bound before a time and that neither a watch nor a read has confirmed."""
    for uid in process.ledger.unconfirmed_since(before):
        placed = process.scheduler.context.cache.get(uid)
        if placed is not None and placed.state is not PodState.ADDED:
            yield f"{uid} is assumed on {placed.info.node_name}, and no read has confirmed it"


def _queue_problems(process: OperatorProcess, server: ApiServer, *, may_moves_raise: bool) -> Iterator[str]:
    context = process.scheduler.context
    queue, cache = context.queue, context.cache
    # The event loop runs between two slices of a cycle, which may be those in which its pod is rejected and requeued.
    is_on = context.suspension.is_on
    moving = (Place.IN_FLIGHT, Place.NOWHERE) if is_on else ()
    rejections, of_moving = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each in queue._places.by_uid.values():
        (of_moving if each.place in moving else rejections).update(
            (plugin, each.profile) for plugin in each.rejected_by
        )
    reported = Counter({key: count for key, count in queue.readings.unschedulable_by.items() if count})
    if not rejections <= reported <= rejections + of_moving:
        yield f"unschedulable pods by plugin are {dict(rejections)}, and are reported as {dict(reported)}"
    places = all_places(queue)
    known = {pod.metadata.uid: pod for pod in process.received.pods.values()}
    for uid, where in places.items():
        pod = known.get(uid)
        if len(where) > 1:
            yield f"{uid} is in {len(where)} places at once: {', '.join(where)}"
        elif pod is not None and (pod.spec.node_name or pod.is_terminal):
            yield f"{uid} is bound or terminated, and is {where[0]} in the queue"
    for node_name in queue.nominator.nodes():
        for info in queue.nominator.nominated_pods(node_name):
            if places.get(info.uid) == [_PARKED]:
                yield f"{info.uid} is parked, and is nominated to {node_name}"
    for uid, pod in known.items():
        if pod.spec.node_name or pod.is_terminal or pod.metadata.deletion_timestamp is not None:
            continue
        placed = cache.get(uid)
        # A change that arrived during a suspended cycle takes effect at its end.
        is_moving = is_on and (queue.find(uid) is not None or bool(context.suspension._deferred))
        if uid not in places and placed is None and not is_moving and _is_pending(server, pod):
            yield f"{uid} is pending, and is not in the queue"
        is_tried = is_on and (
            places.get(uid) in ([_PARKED], [_ACTIVE], [_GATED]) or (may_moves_raise and places.get(uid) == [_FAULTY])
        )
        if uid in places and placed is not None and places[uid] != [_IN_FLIGHT] and not is_tried:
            # A gang's cycle that waits for an extender continues when its profile is deleted, edited or created again.
            yield f"{uid} is assumed on {placed.info.node_name}, and is {places[uid][0]} in the queue"
    for waiting in context.waiting:
        if waiting.pod.uid in known and waiting.pod.uid not in places and cache.get(waiting.pod.uid) is None:
            yield f"{waiting.pod.uid} waits at Permit and is assumed on no node"


def _is_pending(server: ApiServer, pod: Pod) -> bool:
    """Return whether a pod is pending on the API server, too; a read may return a pod before its watch does."""
    now = server.pod(pod.metadata.name)
    return now is not None and now.metadata.uid == pod.metadata.uid and not now.spec.node_name and not now.is_terminal


def check_bind(
    server: ApiServer, capacities: NodeCapacities, pod: Pod, ours: dict[str, str], since: float
) -> Iterator[str]:
    """Yield the problems of a bind that the current operator process has performed.

    Only pods that this process bound are counted, because it may not have received others yet. The node's largest
    capacity at any time after ``since`` counts, because the decision was made then.
    """
    name = pod.spec.node_name
    largest = capacities.largest(name, since)
    there = [other for other in server.pods() if ours.get(other.metadata.uid) == name and not other.is_terminal]
    for what, index in (("milli-CPU", 0), ("MiB", 1)):
        taken = sum(requests_of(other)[index] for other in there)
        if requests_of(pod)[index] and taken > largest[index]:
            names = ", ".join(other.metadata.uid for other in there)
            yield f"{name} is overcommitted by the operator: {taken} of {largest[index]} {what} for {names}"
    if len(there) > largest[2]:
        yield f"{name} is overcommitted by the operator: {len(there)} pods"


def check_idle(supervisor: OperatorSupervisor, server: ApiServer, groups: PodGroups) -> Iterator[str]:
    """Yield the problems after a long time without changes."""
    process = supervisor.process
    context = process.scheduler.context
    if not process.is_scheduling:
        yield "the operator has not started to schedule"
        return
    for waiting in context.waiting:
        yield f"{waiting.pod.uid} waits at Permit forever"
    for instance in process.instances:
        if instance.in_flight:
            yield f"profile {instance.name}, revision {instance.revision} has {instance.in_flight} attempts in flight"
    if context.queue._in_flight.event_count or len(context.queue._in_flight):
        yield "events are stored for finished attempts"
    for uid in process.ledger.open_reservations():
        yield f"{uid} is reserved on {process.ledger.reservations[uid].node_name} forever"
    for placed in context.cache.placed_pods():
        if placed.state is not PodState.ADDED:
            yield f"{placed.info.uid} is assumed on {placed.info.node_name} forever"
    if process.queued_writes:
        yield f"{process.queued_writes} writes stay queued forever"
    yield from _informer_problems(process, server)
    fresh = FreshScheduler(supervisor, server, groups)
    yield from cache_differences(context, fresh.context)
    yield from fresh.feasible_pending_pods()
    yield from fresh.feasible_pending_gangs()


def _informer_problems(process: OperatorProcess, server: ApiServer) -> Iterator[str]:
    for path, informer in process.informers:
        if informer.undelivered.keys:
            yield f"the feed of {path} has not handled {', '.join(informer.undelivered.keys)}"
    for path, informer in ((PODS, process.informers.pods), (NODES, process.informers.nodes)):
        known = {each.metadata.name: each.metadata.resource_version for each in informer.known.values()}
        there = {name: each.metadata.resource_version for name, each in server.collection(path).objects.items()}
        if known != there:
            yield f"the informer of {path} does not match the API server"
