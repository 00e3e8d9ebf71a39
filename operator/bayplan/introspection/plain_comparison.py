"""Comparison of the cache with the API server's objects as plain JSON.

It uses Python's own JSON parser and none of the structs of the model: a bug of their decoding would otherwise be on
both sides of the comparison, and hide itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.cluster_cache import CacheDifference

_ENDED = ("Succeeded", "Failed")

Json = Mapping[str, Any]


def plain_differences(
    context: CycleContext, nodes: Iterable[bytes], pods: Iterable[bytes]
) -> Iterator[CacheDifference]:
    """Compare the fields that decide most: of nodes those that admit pods, of pods their node, labels and requests.

    Args:
        context: Has the cache and the queue.
        nodes: JSON of all nodes.
        pods: JSON of all pods.
    """
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
