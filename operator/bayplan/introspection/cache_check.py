"""Compares the scheduler's cache and queue with the API server.

Nothing is changed; differences are only reported. The comparison runs twice, a few seconds apart, because objects may
change between a list and the comparison. Only differences found both times are reported, so watch lag is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.object_lists import list_objects
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.cache_comparison import CacheDifference, differences
from scheduler_core.snapshot.cluster_cache import ClusterCache

_SETTLE_SECONDS = 2.0


async def check_cache(connection: ApiConnection, scheduler: Scheduler) -> list[CacheDifference]:
    """Compare the cache and the queue with the API server.

    Args:
        connection: Connection to the API server.
        scheduler: Scheduler whose cache and queue are compared.

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
    nodes, _ = await list_objects(connection, "/api/v1/nodes", scheduler.decoded.node)
    pods, _ = await list_objects(connection, "/api/v1/pods", scheduler.decoded.pod)
    await scheduler.context.suspension.over()
    return sorted((*differences(scheduler.context.cache, _cache_of(nodes, pods)), *_queue(scheduler, pods)))


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
