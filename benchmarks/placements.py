"""Checks the cluster after a run: no node overcommitted, hard constraints satisfied, expected number of pods bound.

The check is independent of the code of both schedulers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.workloads import HOSTNAME, Document, Workload
from hack.controlplane.accounts import overcommitted

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"

Labels = Mapping[str, str]


def violations(workload: Workload, nodes: Iterable[Document], pods: Sequence[Document], created: int) -> list[str]:
    labels = {node["metadata"]["name"]: dict(node["metadata"]["labels"]) for node in nodes}
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    own = [pod for pod in placed if pod["metadata"]["name"].startswith("pod-")]
    found = [f"overcommitted: {sentence}" for sentence in overcommitted(nodes, map(_without_devices, placed))]
    found += _lost(workload, own, created)
    found += _off_their_nodes(own, labels)
    found += _against_affinity(own, labels)
    found += _uneven(own, labels)
    return found


def _without_devices(pod: Document) -> Document:
    """Return a pod without the extended resources that the devices of its claim provide; no node offers them."""
    claim = pod.get("status", {}).get("extendedResourceClaimStatus") or {}
    provided = {(each["containerName"], each["resourceName"]) for each in claim.get("requestMappings", ())}
    if not provided:
        return pod
    containers = []
    for container in pod["spec"]["containers"]:
        requests = container["resources"]["requests"]
        left = {name: amount for name, amount in requests.items() if (container["name"], name) not in provided}
        containers.append({**container, "resources": {"requests": left}})
    return {**pod, "spec": {**pod["spec"], "containers": containers}}


def _lost(workload: Workload, own: Sequence[Document], created: int) -> list[str]:
    if workload.churn or workload.in_flight:
        return []
    expected = workload.bound_of(created)
    return [] if len(own) == expected else [f"{len(own)} pods are bound, and not {expected}"]


def _off_their_nodes(own: Iterable[Document], labels: Mapping[str, Labels]) -> Iterable[str]:
    for pod in own:
        required = _affinity(pod, "nodeAffinity", {})
        for term in required.get("nodeSelectorTerms", ()) if required else ():
            for requirement in term["matchExpressions"]:
                if labels[pod["spec"]["nodeName"]].get(requirement["key"]) not in requirement["values"]:
                    yield f"pod {pod['metadata']['name']} is on a node that its affinity excludes"


def _against_affinity(own: Sequence[Document], labels: Mapping[str, Labels]) -> Iterable[str]:
    """All pods of a backlog have the same terms, so a term of one is a term of all."""
    for kind, is_wrong in (("podAffinity", lambda counts: len(counts) > 1), ("podAntiAffinity", _has_two)):
        for term in _affinity(own[0], kind, ()) if own else ():
            counts = Counter(labels[pod["spec"]["nodeName"]].get(term["topologyKey"]) for pod in own)
            if is_wrong(counts):
                yield f"{kind} by {term['topologyKey']} does not hold: {counts.most_common(3)}"


def _has_two(counts: Counter[str | None]) -> bool:
    return any(count > 1 for count in counts.values())


def _affinity(pod: Document, kind: str, default: Any) -> Any:
    return pod["spec"].get("affinity", {}).get(kind, {}).get(_HARD, default)


def _uneven(own: Sequence[Document], labels: Mapping[str, Labels]) -> Iterable[str]:
    for constraint in own[0]["spec"].get("topologySpreadConstraints", ()) if own else ():
        if constraint["whenUnsatisfiable"] != "DoNotSchedule":
            continue
        key = constraint["topologyKey"]
        counts = Counter({values[key]: 0 for values in labels.values() if key != HOSTNAME})
        counts.update(labels[pod["spec"]["nodeName"]][key] for pod in own)
        skew = max(counts.values()) - min(counts.values())
        if skew > constraint["maxSkew"]:
            yield f"pods are spread by {key} with a skew of {skew}: {dict(counts)}"
