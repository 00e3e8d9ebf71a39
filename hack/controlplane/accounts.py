"""Checks a cluster for states that must never occur, from its API objects and its audit log.

Nodes with more requests than allocatable, pods bound twice, and bound pods with the condition PodScheduled=False. The
arithmetic does not share code with a scheduler, so that it detects mistakes in that code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hack.controlplane.api_client import condition_of, status_of

Manifest = dict[str, Any]

_SUFFIXES = {"m": 1, "": 1000, "k": 10**6, "M": 10**9, "G": 10**12, "Ki": 1000 * 2**10, "Mi": 1000 * 2**20}
_SUFFIXES |= {"Gi": 1000 * 2**30, "Ti": 1000 * 2**40}
_ENDED = {"Succeeded", "Failed"}
_CREATED = 201


def overcommitted(nodes: Iterable[Manifest], pods: Iterable[Manifest]) -> list[str]:
    """Find nodes whose pods request more than is allocatable, and pods on nodes that do not exist.

    Args:
        pods: Every pod; only the requests of containers count.
    """
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        node_name = pod["spec"].get("nodeName")
        if not node_name or status_of(pod).get("phase") in _ENDED:
            continue
        on_node = used.setdefault(node_name, Counter())
        on_node["pods"] += 1000
        for container in pod["spec"]["containers"]:
            for resource, quantity in container.get("resources", {}).get("requests", {}).items():
                on_node[resource] += milli(quantity)
    found = []
    for node in nodes:
        allocatable = status_of(node)["allocatable"]
        for resource, amount in used.pop(node["metadata"]["name"], Counter()).items():
            held = milli(allocatable.get(resource, "0"))
            if amount > held:
                found.append(f"{node['metadata']['name']}: {resource} {amount / 1000:g} of {held / 1000:g}")
    return found + [f"{name}: has {pods['pods'] // 1000} pods and is no node" for name, pods in used.items()]


def milli(quantity: str) -> int:
    """Return a quantity in thousandths."""
    digits = quantity.rstrip("kKmMGTi")
    return round(float(digits) * _SUFFIXES[quantity[len(digits) :]])


def reported_unscheduled(pods: Iterable[Manifest]) -> list[str]:
    """Return the names of bound pods whose condition PodScheduled is not True."""
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["spec"].get("nodeName") and condition_of(pod, "PodScheduled").get("status") != "True"
    ]


def bind_responses(events: Iterable[Manifest], namespace: str) -> dict[int, Counter[str]]:
    """Count how often the API server answered a bind of each pod by a code.

    Returns:
        The numbers by pod name, for the codes 201 and 409 and any other that occurs.
    """
    responses: dict[int, Counter[str]] = {201: Counter(), 409: Counter()}
    for event in events:
        # Requests for no object, such as those for /readyz, have none.
        bound: Manifest = event.get("objectRef", {})
        if bound.get("subresource") == "binding" and bound["namespace"] == namespace:
            responses.setdefault(event["responseStatus"]["code"], Counter())[bound["name"]] += 1
    return responses


class GrowingAuditLog:
    """One reader of the API server's audit log.

    It continues from its last position: reading the whole file each time would disturb the servers under test.

    Args:
        path: The file; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def events(self, containing: bytes = b"") -> list[dict[str, Any]]:
        """Return the events written since the last call, up to the last complete line.

        Args:
            containing: Skip lines without these bytes, which is much cheaper than to decode them.
        """
        with self._path.open("rb") as log:
            log.seek(self._offset)
            lines = log.read().split(b"\n")
        self._offset += sum(len(line) + 1 for line in lines[:-1])
        return [json.loads(line) for line in lines[:-1] if containing in line]


class BindingLog:
    """Successful bindings in the audit log, read as it grows.

    Attributes:
        counts: How often each pod was bound, by ``namespace/name``.
    """

    def __init__(self, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._log = GrowingAuditLog(path)

    def read(self) -> int:
        """Read the lines written since the last call; return the number of pods bound so far."""
        for event in self._log.events(b'"subresource":"binding"'):
            if event.get("responseStatus", {}).get("code") == _CREATED:
                reference = event["objectRef"]
                self.counts[f"{reference['namespace']}/{reference['name']}"] += 1
        return len(self.counts)

    def twice(self) -> list[str]:
        return [name for name, times in self.counts.items() if times > 1]
