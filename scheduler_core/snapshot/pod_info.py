"""A pod compiled once, when it first arrives: what every cycle reads of it, in the form that columns take.

It contains only data that depend on the pod and on the numbers of the interners. A plugin stores the data that it
derives from a pod in the cycle state, or in its own cache.

A resource has a column while a node offers it, regardless of requests. When the first node offers a resource, the
requests of pods that are on nodes already are counted.

Each scheduling constraint of a pod costs a pass over all nodes, and a pod of one megabyte can have thousands, so a user
who can create pods could delay the scheduling of all others for a minute. Therefore their number is limited, far above
that of real pods; kube-scheduler has no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TypeVar
from weakref import WeakValueDictionary

from msgspec import Struct

from scheduler_core.model.affinity import LabelSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Container, Pod, PodSpec, Volume
from scheduler_core.model.pod_requests import PodRequests, pod_requests
from scheduler_core.model.pod_volumes import PodVolumes, pod_volumes
from scheduler_core.model.selectors import AffinityTerms, RequiredNodeAffinity, affinity_terms, required_node_affinity
from scheduler_core.model.taints import TolerationIndex
from scheduler_core.snapshot.interning import FIXED_RESOURCES, UNOFFERED_COLUMN, ResourceNames

MAX_DEMANDS = 500
_VALUES_OF_DEMAND = 50
"""Listed values that together cost as much as a requirement."""
_CONTAINERS_OF_DEMAND = 4
"""Containers that together cost as much as a requirement: their requests are summed for each version of the pod."""

_sources = attrgetter(
    *("claim", "ephemeral", "gce", "aws", "iscsi", "azure_disk", "azure_file", "cinder", "portworx", "vsphere")
)
_NO_SOURCES = _sources(Volume())


def demand_count(spec: PodSpec) -> int:
    """Return the approximate cost of a spec's requirements, values, terms, constraints, volumes and containers."""
    containers = (*spec.containers, *spec.init_containers)
    count = len(spec.node_selector) + _resource_count(containers) + len(containers) // _CONTAINERS_OF_DEMAND
    for volume in spec.volumes:
        count += _of_volume(volume)
    for constraint in spec.topology_spread_constraints:
        count += 1 + _of_selector(constraint.label_selector) + len(constraint.match_label_keys)
    affinity = spec.affinity
    if affinity is None:
        return count
    if affinity.node_affinity is not None:
        node_affinity = affinity.node_affinity
        if node_affinity.required is not None:
            count += _of_node_terms(node_affinity.required.node_selector_terms)
        count += _of_node_terms(one.preference for one in node_affinity.preferred)
    return count + _of_pod_affinity(affinity.pod_affinity) + _of_pod_affinity(affinity.pod_anti_affinity)


def limited_volumes(volumes: Iterable[Volume]) -> tuple[Volume, ...]:
    """Return the first volumes, within the limit, of a pod on a node that exceeds it."""
    limited: list[Volume] = []
    count = 0
    for volume in volumes:
        count += _of_volume(volume)
        if count > MAX_DEMANDS:
            break
        limited.append(volume)
    return tuple(limited)


def _of_volume(volume: Volume) -> int:
    if volume.rbd is not None:
        return 1 + len(volume.rbd.monitors)
    return _sources(volume) != _NO_SOURCES


def _resource_count(containers: tuple[Container, ...]) -> int:
    if len(containers) == 1:
        return len(containers[0].resources.requests)
    return len({name for one in containers for name in one.resources.requests})


def _of_node_terms(terms: Iterable[NodeSelectorTerm]) -> int:
    return sum(1 + _of_requirements(term.match_expressions) + len(term.match_fields) for term in terms)


def _of_pod_affinity(affinity: PodAffinity | None) -> int:
    if affinity is None:
        return 0
    preferred = (one.pod_affinity_term for one in affinity.preferred)
    return sum(map(_of_pod_term, affinity.required)) + sum(map(_of_pod_term, preferred))


def _of_pod_term(term: PodAffinityTerm) -> int:
    return 1 + _of_selector(term.label_selector) + _of_selector(term.namespace_selector)


def _of_selector(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels) + _of_requirements(selector.match_expressions)


def _of_requirements(requirements: Iterable[Requirement]) -> int:
    return sum(1 + len(one.values) // _VALUES_OF_DEMAND for one in requirements)


NO_ROW = -1
K = TypeVar("K")
T = TypeVar("T")

# A host port that a pod takes: (protocol, port, host IP); the wildcard IP is 0.0.0.0.
HostPort = tuple[str, int, str]
WILDCARD_IP = "0.0.0.0"  # noqa: S104 - an address to compare with, nothing listens on it


class PodInfo:
    """A compiled pod; plugins may refer to it weakly, to store data until it is dropped.

    Attributes:
        key: ``namespace/name``.
        priority: ``spec.priority``, 0 if it is not set.
        requests: Sums over its containers, by resource name.
        fit_names: Resources that it requests: those with fixed columns in their order, then the others by name.
        scalars: Resources without a fixed column that count for its node.
        volumes: Its claims, and its inline volumes that are counted or may conflict.
        row: The row of the node while it is counted there, else -1.
        is_cancelled: Whether a preemption has cancelled its attempt, which has not released it yet.
        demands: Number of its scheduling constraints, as :func:`demand_count` counts them; 0 if it is not known.
        is_findable: Whether :func:`compiled_pod` finds it, because hints were called for it.
        numbered: What :attr:`accounted` returns, if ``numbering`` is the version of the resources' columns.
        numbering: The version of the resources' columns that it was numbered for.
        class_key: The strict key of its pod class, and the version of the pod it is for; None until it is needed.
    """

    __slots__ = (
        "__weakref__",
        "_fit",
        "_node_affinity",
        "_resources",
        "_tolerations",
        "class_key",
        "demands",
        "fit_names",
        "hint_cost",
        "host_ports",
        "is_cancelled",
        "is_findable",
        "key",
        "node_name",
        "numbered",
        "numbering",
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
        self.number()
        self.host_ports: tuple[HostPort, ...] = host_ports(pod)
        self.terms: AffinityTerms = affinity_terms(pod)
        self.volumes: PodVolumes = pod_volumes(pod)
        self.node_name = pod.spec.node_name
        self.row = NO_ROW
        self.is_cancelled = False
        self.demands = 0
        self.class_key: tuple[Pod, bytes] | None = None
        self.hint_cost = 0
        self.is_findable = False
        self._node_affinity: RequiredNodeAffinity | None = None
        self._tolerations: TolerationIndex | None = None

    def __repr__(self) -> str:
        return f"PodInfo({self.key}, uid={self.uid}, node={self.node_name or None})"

    @property
    def node_affinity(self) -> RequiredNodeAffinity:
        if self._node_affinity is None:
            self._node_affinity = required_node_affinity(self.pod)
        return self._node_affinity

    @property
    def tolerations(self) -> TolerationIndex:
        if self._tolerations is None:
            self._tolerations = TolerationIndex(self.pod.spec.tolerations)
        return self._tolerations

    def make_findable(self) -> None:
        """Let :func:`compiled_pod` find this by the decoded pod, from now on until it is dropped."""
        if not self.is_findable:
            self.is_findable = True
            _findable[id(self.pod)] = self

    @property
    def is_leaving(self) -> bool:
        """Whether its node will be free of it without another eviction."""
        return self.is_cancelled or self.pod.metadata.deletion_timestamp is not None

    @property
    def fit(self) -> tuple[tuple[int, int], ...]:
        """(resource column, amount) of what must be free, positive amounts only, in the order of :attr:`fit_names`.

        A resource that no node offers has the column :data:`UNOFFERED_COLUMN`.
        """
        if self.numbering != self._resources.version:
            self.number()
        return self._fit

    @property
    def accounted(self) -> tuple[tuple[int, int], ...]:
        """(resource column, amount) of what counts for its node, without resources that no node offers."""
        if self.numbering != self._resources.version:
            self.number()
        return self.numbered

    def number(self) -> None:
        """Look up the columns of its resources, which change when nodes start or stop to offer them."""
        requests, find = self.requests, self._resources.find
        self._fit = tuple(
            [
                (UNOFFERED_COLUMN if (column := find(name)) is None else column, requests.fit[name])
                for name in self.fit_names
            ]
        )
        self.numbered = tuple(
            [
                (column, amount)
                for name, amount in requests.accounted.items()
                if amount and (column := find(name)) is not None
            ]
        )
        # Last, so that a lookup that raised is repeated.
        self.numbering = self._resources.version


_findable: WeakValueDictionary[int, PodInfo] = WeakValueDictionary()


def compiled_pod(pod: Pod) -> PodInfo | None:
    """Return the compiled form of a waiting pod for which queueing hints are called; None if it is not known."""
    info = _findable.get(id(pod))
    return info if info is not None and info.pod is pod else None


def compiled_once(read: Callable[[PodInfo], T], compute: Callable[[Pod], T]) -> Callable[[Pod], T]:
    """Return a function of decoded pods for queueing hints, which are called for all waiting pods on each event.

    Args:
        read: Returns the form that a compiled pod stores.
    """
    of_event = once_per_event(compute)

    def form(pod: Pod) -> T:
        info = compiled_pod(pod)
        return of_event(pod) if info is None else read(info)

    return form


def once_per_event(compute: Callable[[K], T]) -> Callable[[K], T]:
    """Return the function with a store of its last two results: for the object of an event before and after it."""
    latest: list[tuple[K, T]] = []

    def stored(key: K) -> T:
        for other, found in latest:
            if other is key:
                return found
        found = compute(key)
        latest[:] = [(key, found), *latest[:1]]
        return found

    return stored


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


def ports_conflict(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Return whether pods with these host ports exclude each other on a node; linear in both numbers."""
    addresses: dict[tuple[str, int], set[str]] = {}
    for protocol, port, address in taken:
        addresses.setdefault((protocol, port), set()).add(address)
    for protocol, port, address in wanted:
        others = addresses.get((protocol, port))
        if others and (address == WILDCARD_IP or address in others or WILDCARD_IP in others):
            return True
    return False


terms_of = compiled_once(lambda info: info.terms, affinity_terms)
requests_of = compiled_once(lambda info: info.requests, pod_requests)
volumes_of = compiled_once(lambda info: info.volumes, pod_volumes)
host_ports_of = compiled_once(lambda info: info.host_ports, host_ports)
node_affinity_of = compiled_once(lambda info: info.node_affinity, required_node_affinity)
tolerations_of = compiled_once(lambda info: info.tolerations, lambda pod: TolerationIndex(pod.spec.tolerations))


class ColumnChange(Struct, frozen=True):
    """Columns that a change of a node's resources frees and assigns.

    Attributes:
        closed: Columns that are free, or that have another resource now.
        opened: Resources that got a column.
    """

    closed: tuple[int, ...] = ()
    opened: tuple[str, ...] = ()


_NO_CHANGE = ColumnChange()


class ScalarResources:
    """Offers of nodes and requests of pods."""

    __slots__ = ("_names", "_offered", "_users")

    def __init__(self, names: ResourceNames) -> None:
        self._names = names
        self._offered: dict[int, dict[str, None]] = {}
        self._users: dict[str, dict[str, PodInfo]] = {}

    def offer(self, row: int, names: tuple[str, ...]) -> ColumnChange:
        """Set what the node of a row offers; nothing for a removed node."""
        before, after = self._offered.get(row, {}), dict.fromkeys(names)
        if after == before:
            return _NO_CHANGE
        if after:
            self._offered[row] = after
        else:
            del self._offered[row]
        freed = [self._names.withdraw(name) for name in before if name not in after]
        opened = [name for name in after if name not in before and self._names.offer(name)]
        while (adopted := self._names.adopt()) is not None:
            opened.append(adopted)
        return ColumnChange(tuple([column for column in freed if column is not None]), tuple(opened))

    def rows_with(self, name: str) -> Iterable[int]:
        return [row for row, names in self._offered.items() if name in names]

    def clear(self) -> None:
        """Remove all nodes and pods, and with the nodes the columns."""
        self._offered.clear()
        self._names.clear()
        self.clear_pods()

    def clear_pods(self) -> None:
        self._users.clear()

    def add_pod(self, info: PodInfo) -> None:
        for name in info.scalars:
            self._users.setdefault(name, {})[info.uid] = info

    def remove_pod(self, info: PodInfo) -> None:
        for name in info.scalars:
            users = self._users[name]
            del users[info.uid]
            if not users:
                del self._users[name]

    def taken(self, name: str) -> Iterable[tuple[int, int]]:
        """Return row and amount of each pod on a node that requests a resource."""
        return [(info.row, info.requests.accounted[name]) for info in self._users.get(name, {}).values()]
