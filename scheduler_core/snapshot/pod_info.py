"""A pod compiled once, when it first arrives: what every cycle reads of it, in the form that columns take.

Owns what depends on the pod alone and on the numbers of the interners. Must not know plugins; what one plugin derives
from a pod it keeps in the cycle state or in a memo of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_core.model.affinity_terms import AffinityTerms, affinity_terms
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import PodRequests, pod_requests
from scheduler_core.model.pod_volumes import PodVolumes, pod_volumes
from scheduler_core.snapshot.interning import Interner

NO_ROW = -1

# A host port that a pod takes: (protocol, port, host IP); the wildcard IP is 0.0.0.0.
HostPort = tuple[str, int, str]
WILDCARD_IP = "0.0.0.0"  # noqa: S104 - an address to compare with, nothing listens on it


class PodInfo:
    """A compiled pod.

    Attributes:
        pod: The pod as decoded.
        uid: Its UID.
        key: ``namespace/name``.
        priority: ``spec.priority``, 0 where it is not set.
        requests: Sums over its containers, by resource name.
        fit: (resource column, amount) of what must be free; amounts above 0 only.
        accounted: (resource column, amount) of what it takes of a node.
        host_ports: Host ports of its containers and sidecars.
        terms: Its terms of inter-pod affinity and anti-affinity.
        volumes: Its claims, and its inline volumes that are counted or conflict.
        node_name: Where it runs or is assumed to run; "" for nowhere.
        row: The node's row while it is accounted there, else -1.
        signature: Who numbered what the plugins of a profile read of it, and the number; None before anyone did.
    """

    __slots__ = (
        "accounted",
        "fit",
        "host_ports",
        "key",
        "node_name",
        "pod",
        "priority",
        "requests",
        "row",
        "signature",
        "terms",
        "uid",
        "volumes",
    )

    def __init__(self, pod: Pod, resources: Interner[str]) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.key = pod.key
        self.priority = pod.spec.priority or 0
        self.requests: PodRequests = pod_requests(pod)
        self.fit = _columns(self.requests.fit, resources)
        self.accounted = self.fit
        if self.requests.accounted is not self.requests.fit:
            self.accounted = _columns(self.requests.accounted, resources)
        self.host_ports: tuple[HostPort, ...] = host_ports(pod)
        self.terms: AffinityTerms = affinity_terms(pod)
        self.volumes: PodVolumes = pod_volumes(pod)
        self.node_name = pod.spec.node_name
        self.row = NO_ROW
        self.signature: tuple[object, int] | None = None

    def __repr__(self) -> str:
        return f"PodInfo({self.key}, uid={self.uid}, node={self.node_name or None})"


def _columns(amounts: Mapping[str, int], resources: Interner[str]) -> tuple[tuple[int, int], ...]:
    intern = resources.intern
    return tuple([(intern(name), amount) for name, amount in amounts.items() if amount])


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports that a pod's containers and sidecars take, each once."""
    containers = pod.spec.containers
    if pod.spec.init_containers:
        sidecars = [container for container in pod.spec.init_containers if container.restart_policy == "Always"]
        containers = (*containers, *sidecars)
    ports: list[HostPort] = [
        (port.protocol or "TCP", port.host_port, port.host_ip or WILDCARD_IP)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    ]
    return tuple(dict.fromkeys(ports)) if ports else ()
