"""A pod compiled once, when it first arrives: what every cycle reads of it, in the form that columns take.

It contains only data that depend on the pod and on the numbers of the interners. A plugin stores the data that it
derives from a pod in the cycle state, or in its own cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_core.model.affinity_terms import AffinityTerms, affinity_terms
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_requests import PodRequests, pod_requests
from scheduler_core.model.pod_volumes import PodVolumes, pod_volumes
from scheduler_core.snapshot.interning import FIXED_RESOURCES, UNOFFERED_COLUMN, ResourceNames

NO_ROW = -1

# A host port that a pod takes: (protocol, port, host IP); the wildcard IP is 0.0.0.0.
HostPort = tuple[str, int, str]
WILDCARD_IP = "0.0.0.0"  # noqa: S104 - an address to compare with, nothing listens on it


class PodInfo:
    """A compiled pod; plugins may refer to it weakly, to store data until it is dropped.

    Attributes:
        pod: The pod as decoded.
        uid: The UID.
        key: ``namespace/name``.
        priority: ``spec.priority``, 0 if it is not set.
        requests: Sums over its containers, by resource name.
        fit_names: Resources that it requests: those with fixed columns in their order, then the others by name.
        scalars: Resources without a fixed column that count for its node.
        host_ports: Host ports of its containers and sidecars.
        terms: Its terms of inter-pod affinity and anti-affinity.
        volumes: Its claims, and its inline volumes that are counted or may conflict.
        node_name: The node on which it runs or is assumed; "" for none.
        row: The row of the node while it is counted there, else -1.
        is_cancelled: Whether a preemption has cancelled its attempt, which has not released it yet.
        demands: Number of its scheduling constraints, as :func:`demand_count` counts them; 0 if it is not known.
        class_key: The strict key of its pod class, and the version of the pod it is for; None until it is needed.
    """

    __slots__ = (
        "__weakref__",
        "_accounted",
        "_fit",
        "_resources",
        "_version",
        "class_key",
        "demands",
        "fit_names",
        "host_ports",
        "is_cancelled",
        "key",
        "node_name",
        "pod",
        "priority",
        "requests",
        "row",
        "scalars",
        "terms",
        "uid",
        "volumes",
    )

    def __init__(self, pod: Pod, resources: ResourceNames) -> None:
        self.pod = pod
        self.uid = pod.metadata.uid
        self.key = pod.key
        self.priority = pod.spec.priority or 0
        self.requests: PodRequests = pod_requests(pod)
        self.fit_names = _ordered(self.requests.fit)
        self.scalars = tuple(
            [name for name, amount in self.requests.accounted.items() if amount and name not in FIXED_RESOURCES]
        )
        self._resources = resources
        self._number()
        self.host_ports: tuple[HostPort, ...] = host_ports(pod)
        self.terms: AffinityTerms = affinity_terms(pod)
        self.volumes: PodVolumes = pod_volumes(pod)
        self.node_name = pod.spec.node_name
        self.row = NO_ROW
        self.is_cancelled = False
        self.demands = 0
        self.class_key: tuple[Pod, bytes] | None = None

    def __repr__(self) -> str:
        return f"PodInfo({self.key}, uid={self.uid}, node={self.node_name or None})"

    @property
    def is_leaving(self) -> bool:
        """Whether its node will be free of it without another eviction."""
        return self.is_cancelled or self.pod.metadata.deletion_timestamp is not None

    @property
    def fit(self) -> tuple[tuple[int, int], ...]:
        """(resource column, amount) of what must be free, positive amounts only, in the order of :attr:`fit_names`.

        A resource that no node offers has the column :data:`UNOFFERED_COLUMN`.
        """
        if self._version != self._resources.version:
            self._number()
        return self._fit

    @property
    def accounted(self) -> tuple[tuple[int, int], ...]:
        """(resource column, amount) of what counts for its node, without resources that no node offers."""
        if self._version != self._resources.version:
            self._number()
        return self._accounted

    def _number(self) -> None:
        """Look up the columns of its resources, which change when nodes start or stop to offer them."""
        requests, find = self.requests, self._resources.find
        self._fit = tuple(
            [
                (UNOFFERED_COLUMN if (column := find(name)) is None else column, requests.fit[name])
                for name in self.fit_names
            ]
        )
        self._accounted = tuple(
            [
                (column, amount)
                for name, amount in requests.accounted.items()
                if amount and (column := find(name)) is not None
            ]
        )
        # Last, so that a lookup that raised is repeated.
        self._version = self._resources.version


def _ordered(amounts: Mapping[str, int]) -> tuple[str, ...]:
    names = [name for name in FIXED_RESOURCES if amounts.get(name)]
    if len(names) < len(amounts):
        names += sorted([name for name, amount in amounts.items() if amount and name not in FIXED_RESOURCES])
    return tuple(names)


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's containers and sidecars, without duplicates."""
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
