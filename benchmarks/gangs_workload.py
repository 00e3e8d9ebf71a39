"""Objects of scheduler_perf's gang workload, and the check that gangs are bound as a whole.

Nodes, groups of the native API and their members equal that workload (kubernetes/kubernetes,
``test/integration/scheduler_perf/podgroup/gangscheduling``, pull request 138341: 5,000 nodes of 4 CPUs and 32 GiB;
1,000, 2,000 and 3,000 gangs of 3; members request 100m and 100 MiB).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.workloads import NAMESPACE, SCHEDULER_NAME, Document
from hack.controlplane.native_groups import native_groups

API_VERSION = native_groups().api_version
"""The published workload for 1.37 uses v1beta1; v1alpha2 of 1.36 has the same fields."""

GROUPS_PATH = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/podgroups"


@dataclass(frozen=True, slots=True)
class GangBacklog:
    """A backlog of gangs.

    Attributes:
        size: Number of members per gang, all of which are required.
    """

    nodes: int
    gangs: int
    size: int

    @property
    def pods(self) -> int:
        return self.gangs * self.size


def node(number: int) -> Document:
    """Make a node of scheduler_perf's default size."""
    name = f"scheduler-perf-{number:05d}"
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def group(number: int, size: int) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": gang_name(number), "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }


def members(backlog: GangBacklog) -> Iterator[Document]:
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
    }
    for number in range(backlog.pods):
        gang = number // backlog.size
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{gang_name(gang)}-{number % backlog.size}", "namespace": NAMESPACE},
            "spec": {
                "schedulerName": SCHEDULER_NAME,
                "schedulingGroup": {"podGroupName": gang_name(gang)},
                "containers": [container],
            },
        }


def gang_name(number: int) -> str:
    return f"gang-{number}"


def gang_of(pod_name: str) -> str:
    return pod_name.rpartition("-")[0]


def partial_gangs(pods: Iterable[Mapping[str, Any]], size: int) -> list[str]:
    """Return the gangs that have some but not all of their members on nodes."""
    bound = Counter(gang_of(pod["metadata"]["name"]) for pod in pods if pod["spec"].get("nodeName"))
    return sorted(gang for gang, count in bound.items() if count != size)


def longest_partial(names: Iterable[str], times: Iterable[float]) -> float:
    """Return the longest time between the first and the last bind of one gang, in seconds; 0 without binds.

    Args:
        names: Names of pods, each bound once.
        times: Times of their binds in seconds, in the same order.
    """
    spans: dict[str, tuple[float, float]] = {}
    for name, time in zip(names, times, strict=True):
        first, last = spans.get(gang_of(name), (time, time))
        spans[gang_of(name)] = min(first, time), max(last, time)
    return max((last - first for first, last in spans.values()), default=0.0)
