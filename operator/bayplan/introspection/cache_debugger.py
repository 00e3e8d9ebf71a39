"""On SIGUSR2 logs the cache and the queue, and their differences from the API server.

A comparison changes nothing. It runs twice, a few seconds apart, because objects may change between a list and the
comparison. Only differences found both times are reported, so watch lag is not.

Follows kube-scheduler v1.37.1 (``backend/cache/debugger``), whose comparer and dumper run on the same signal.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.informer import decoded_objects, list_json
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.errors import ClusterWriteError
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.cluster_cache import CacheDifference, ClusterCache, PodState, differences

log = logging.getLogger(__name__)

_LINES_AT_ONCE = 200


class CacheDebugger:
    """Dumps and compares the cache and the queue, one run at a time."""

    def __init__(self, connection: ApiConnection, scheduler: Scheduler) -> None:
        self._connection = connection
        self._scheduler = scheduler
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a run unless one is in progress; the signal handler calls this."""
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self.run(), name="cache debugger")

    async def stop(self) -> None:
        """Cancel the run in progress."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def run(self) -> None:
        """Dump and compare once."""
        for number, line in enumerate([*dump(self._scheduler.context)]):
            log.info("%s", line)
            if number % _LINES_AT_ONCE == _LINES_AT_ONCE - 1:
                await asyncio.sleep(0)
        try:
            found = await check_cache(self._connection, self._scheduler)
        except ClusterWriteError as error:
            log.warning("cache check: nodes or pods cannot be listed: %s; send the signal again", error)
            return
        for difference in found:
            log.warning("cache check: %s", difference)
        log.info("cache check: %d differences", len(found))


def dump(context: CycleContext) -> Iterator[str]:
    """Yield the cache and the queue, a line for each node and each pod of the queue."""
    columns, cache = context.cache.columns, context.cache
    yield f"cache dump: {columns.count} nodes, {len(cache)} pods, {cache.assumed_count} of them assumed"
    for name in sorted(name for name in columns.names if name is not None):
        row = columns.row_of(name)
        amounts = [
            f"{resource} {int(requested)}/{int(allocatable)}"
            for resource, requested, allocatable in zip(
                columns.resources.keys, columns.requested[:, row], columns.allocatable[:, row], strict=True
            )
            if requested or allocatable
        ]
        nominated = [info.key for info in context.queue.nominator.nominated_pods(name)]
        nominations = f", nominated {' '.join(nominated)}" if nominated else ""
        pods = f"pods {int(columns.pod_count[row])}/{int(columns.allowed_pods[row])}"
        yield f"node {name}: requested of allocatable {', '.join((*amounts, pods))}{nominations}"
    for placed in cache.placed_pods():
        if placed.state is not PodState.ADDED:
            yield f"assumed pod {placed.info.key}: node {placed.info.node_name}, {placed.state.name.lower()}"
    for entry in context.waiting:
        yield f"waiting pod {entry.pod.key}: node {entry.node_name}, for {' '.join(entry.pending_plugins())}"
    yield f"queue dump: {len(context.queue.readings)} pods, {context.queue.readings.parked_count} parked pods"
    for place, pod in context.queue.readings.places():
        reason = f", rejected by {' '.join(sorted(pod.rejected_by))}" if pod.rejected_by else ""
        yield f"queue {place}: pod {pod.info.key}, attempts {pod.attempts}{reason}"


_SETTLE_SECONDS = 2.0


async def check_cache(connection: ApiConnection, scheduler: Scheduler) -> list[CacheDifference]:
    """Compare the cache and the queue with the API server.

    Returns:
        The differences, sorted; empty if there are none.

    Raises:
        ClusterWriteError: Nodes or pods cannot be listed.
    """
    first = await _compare(connection, scheduler)
    if not first:
        return []
    await scheduler.context.clock.sleep(_SETTLE_SECONDS)
    second = await _compare(connection, scheduler)
    return sorted(set(first) & set(second))


async def _compare(connection: ApiConnection, scheduler: Scheduler) -> list[CacheDifference]:
    texts = {path: await list_json(connection, path) for path in ("/api/v1/nodes", "/api/v1/pods")}
    nodes, unreadable_nodes = decoded_objects(texts["/api/v1/nodes"], scheduler.decoded.node)
    pods, unreadable_pods = decoded_objects(texts["/api/v1/pods"], scheduler.decoded.pod)
    context = scheduler.context
    await context.suspension.over()
    found = {*plain_differences(context, *texts.values()), *_queue(scheduler, pods)}
    if not unreadable_nodes and not unreadable_pods:
        # Sums can be compared only if all objects are decoded.
        found.update(differences(context.cache, _cache_of(nodes, pods)))
    return sorted(found)


def _cache_of(nodes: list[Node], pods: list[Pod]) -> ClusterCache:
    cache = ClusterCache()
    for node in nodes:
        cache.add_node(node)
    for pod in pods:
        if pod.spec.node_name and not pod.is_terminal:
            cache.add_pod(pod)
    return cache


def _queue(scheduler: Scheduler, pods: list[Pod]) -> Iterator[CacheDifference]:
    context = scheduler.context
    waiting = {pod.metadata.uid: pod for pod in pods if not pod.spec.node_name and not pod.is_terminal}
    for uid, pod in waiting.items():
        if context.queue.find(uid) is None and context.cache.get(uid) is None:
            yield CacheDifference("Pod", pod.key, "is pending and not in the queue")
    for place, queued in context.queue.readings.places():
        if queued.uid not in waiting and context.cache.get(queued.uid) is None:
            yield CacheDifference("Pod", queued.info.key, f"is in the queue ({place}) and not pending any more")


# -- plain JSON: read without the structs of the model, so that a bug of their decoding cannot hide itself ------------


_ENDED = ("Succeeded", "Failed")

Json = Mapping[str, Any]


def plain_differences(
    context: CycleContext, nodes: Iterable[bytes], pods: Iterable[bytes]
) -> Iterator[CacheDifference]:
    """Compare the fields that decide most: of nodes those that admit pods, of pods their node, labels and requests."""
    for text in nodes:
        node = json.loads(text)
        name = _field(node, "metadata", "name")
        for what in _of_node(context, str(name), node):
            yield CacheDifference("Node", str(name), what)
    for text in pods:
        pod = json.loads(text)
        key = f"{_field(pod, 'metadata', 'namespace')}/{_field(pod, 'metadata', 'name')}"
        for what in _of_pod(context, pod):
            yield CacheDifference("Pod", key, what)


def _of_node(context: CycleContext, name: str, node: Json) -> Iterator[str]:
    columns = context.cache.columns
    row = columns.row_of(name)
    ours = columns.nodes[row] if row >= 0 else None
    if ours is None:
        yield "is not in the cache"
        return
    reason = columns.held.reason(name)
    if reason:
        yield f"accepts no pods: {reason}"
    yield from _unequal(_facts_of_node(node), _facts_of_our_node(ours))


def _facts_of_node(node: Json) -> dict[str, object]:
    taints = _field(node, "spec", "taints") or []
    return {
        "spec.unschedulable": bool(_field(node, "spec", "unschedulable")),
        "spec.taints": sorted(_taint(each) for each in taints) if isinstance(taints, list) else taints,
        "metadata.labels": _texts(_field(node, "metadata", "labels")),
        "status.allocatable": _texts(_field(node, "status", "allocatable")),
    }


def _facts_of_our_node(node: Node) -> dict[str, object]:
    return {
        "spec.unschedulable": node.spec.unschedulable,
        "spec.taints": sorted(f"{each.key}={each.value}:{each.effect}" for each in node.spec.taints),
        "metadata.labels": _texts(node.metadata.labels),
        "status.allocatable": _texts(node.status.allocatable),
    }


def _of_pod(context: CycleContext, pod: Json) -> Iterator[str]:
    uid, node_name = str(_field(pod, "metadata", "uid")), _field(pod, "spec", "nodeName") or ""
    if _field(pod, "status", "phase") in _ENDED:
        return
    placed, queued = context.cache.get(uid), context.queue.find(uid)
    if placed is None:
        if node_name:
            yield f"is bound to node {node_name} and not in the cache"
        elif queued is None:
            yield "is pending and not in the queue"
        else:
            yield from _unequal(_facts_of_pod(pod), _facts_of_our_pod(queued.info.pod))
        return
    if node_name and placed.info.node_name != node_name:
        yield f"is bound to node {node_name}, the cache has it on {placed.info.node_name}"
    if node_name:
        yield from _unequal(_facts_of_pod(pod), _facts_of_our_pod(placed.info.pod))


def _facts_of_pod(pod: Json) -> dict[str, object]:
    containers = _field(pod, "spec", "containers") or []
    requests: object = containers
    if isinstance(containers, list):
        requests = [_texts(_field(each, "resources", "requests")) for each in containers]
    return {"metadata.labels": _texts(_field(pod, "metadata", "labels")), "spec.containers[].resources": requests}


def _facts_of_our_pod(pod: Pod) -> dict[str, object]:
    return {
        "metadata.labels": _texts(pod.metadata.labels),
        "spec.containers[].resources": [_texts(each.resources.requests) for each in pod.spec.containers],
    }


def _unequal(theirs: dict[str, object], ours: dict[str, object]) -> Iterator[str]:
    for name, value in theirs.items():
        if value != ours[name]:
            yield f"{name} is {value}, the cache has {ours[name]}"


def _field(value: object, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _taint(taint: object) -> str:
    key, value, effect = (_field(taint, name) or "" for name in ("key", "value", "effect"))
    return f"{key}={value}:{effect}"


def _texts(values: object) -> object:
    if not isinstance(values, Mapping):
        return values or {}
    return {str(name): "" if value is None else str(value) for name, value in values.items()}
