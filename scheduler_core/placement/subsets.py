"""Topology domains in which a gang may be scheduled, in the order in which they are tried.

Groups of ``scheduling.k8s.io`` follow the order of kube-scheduler's placement scores. Room is the number of members
that fit by resources alone: a domain with enough room may be infeasible, one without enough room is always infeasible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.filter_and_score import Feasible
from scheduler_core.cycle.gang_constraints import ANYWHERE, NO_SUBSET, NodeSubset, NodeSubsets, Where
from scheduler_core.framework.extension_points import PortsFilter, SumsFilter
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.model.pod_group import GroupKey, GroupTopology
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.runtime.equivalence import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_MOST_POINTS = 100
_UNBOUNDED = 1 << 62
"""Room of all nodes, which is not computed."""


@dataclass(frozen=True, slots=True)
class Exempts:
    """What the filters of a profile ignore, so that a node may have too little of it.

    Attributes:
        resource: Returns whether a resource is ignored.
        amounts: Whether all resources and the number of pods are ignored.
        ports: Whether host ports are ignored.
        shares: Whether placements are not scored by their allocated share, either.
    """

    resource: Callable[[str], bool]
    amounts: bool = False
    ports: bool = False
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes with the same value of a label.

    Attributes:
        room: Upper bound of the number of members that fit, by resources alone.
    """

    key: str
    value: str
    subset: NodeSubset
    room: int

    @property
    def where(self) -> Where:
        """The domain as the only place of an attempt."""
        return _where(self.subset, str(self))

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


def candidate_domains(
    nodes: NodeColumns,
    topology: GroupTopology,
    members: Sequence[PodInfo],
    needed: int,
    *,
    placed: Sequence[PodInfo],
    within: NDArray[np.bool_] | None = None,
    when_empty: bool = False,
    exempts: Exempts | None = None,
) -> list[Domain]:
    """Return the domains to try, in order; those without enough room come last, for explanations.

    Args:
        placed: Members that have a node already; if one domain is required, it is theirs.
        within: bool per row, the only nodes of the domains; None for all nodes.
        when_empty: Whether their room is that without the pods that are on the nodes.
        exempts: What does not count; None if all counts.
    """
    room = member_room(nodes, members, when_empty=when_empty, exempts=exempts)
    allowed = domain_of_members(nodes, topology, placed) if topology.is_required else None
    found: list[Domain] = []
    # The narrowest level first.
    for key in (*reversed(topology.levels), topology.key):
        of_level = _domains(nodes, (key, topology.key), room, within)
        if allowed is not None and allowed.mask is not None and of_level:
            outside = of_level[0].subset.of.touched(~allowed.mask)
            of_level = [domain for domain in of_level if domain.subset.number not in outside]
        if topology.prefers_allocated:
            scores = _placement_scores(nodes, of_level, members, needed, exempts)
            # kube-scheduler chooses randomly among equal scores.
            of_level.sort(key=lambda domain: (-scores[domain.value], domain.value))
            found += of_level
        else:
            # The smallest domain with enough room first, so that large domains stay free for large gangs.
            found += sorted(of_level, key=lambda domain: (domain.room, domain.value))
    return [domain for domain in found if domain.room >= needed] + sorted(
        (domain for domain in found if domain.room < needed), key=lambda domain: -domain.room
    )


def too_small_domains(
    nodes: NodeColumns,
    topology: GroupTopology,
    members: Sequence[PodInfo],
    needed: int,
    placed: Sequence[PodInfo],
    *,
    exempts: Exempts | None = None,
) -> str:
    """Return why no domain of a required topology can ever hold the members; "" if one may, or if there is none."""
    if not topology.is_required:
        return ""
    domains = candidate_domains(nodes, topology, members, needed, placed=placed, when_empty=True, exempts=exempts)
    largest = max(domains, key=lambda domain: domain.room, default=None)
    if largest is None or largest.room >= needed:
        return ""
    return (
        f"no domain of {topology.key} has room for them even without other pods: the largest, {largest}, has room for "
        f"{largest.room}; add nodes to a domain, or change the group's topology or its members' requests"
    )


def _placement_scores(
    nodes: NodeColumns,
    domains: Sequence[Domain],
    members: Sequence[PodInfo],
    needed: int,
    exempts: Exempts | None,
) -> dict[str, int]:
    """Score domains by the number of members that have room and the resulting allocated share of CPU and memory.

    Follows kube-scheduler v1.37.1, plugins PodGroupPodsCount (``plugins/podgrouppodscount``) and NodeResourcesFit
    (``plugins/noderesources/resource_allocation.go``, ``scorePlacement``) with their default args. A profile without
    NodeResourcesFit has no score of the share.

    Returns:
        The score by the domain's value.
    """
    # An upper bound by resources: kube-scheduler schedules the members in each domain before it scores it.
    counts = [max(0, min(len(members), domain.room)) for domain in domains]
    most = max((count for count in counts if count >= needed), default=0)
    cpu = [0, *accumulate(info.requests.scored_cpu_milli for info in members)]
    memory = [0, *accumulate(info.requests.scored_memory for info in members)]
    scores = {}
    for domain, count in zip(domains, counts, strict=True):
        added = cpu[count], memory[count]
        share = 0 if exempts is not None and exempts.shares else allocated_share(nodes, domain.subset.rows, added)
        scores[domain.value] = placement_score(count, most, share)
    return scores


def placement_score(count: int, most: int, share: int) -> int:
    return count * _MOST_POINTS // max(1, most) + share


def allocated_share(nodes: NodeColumns, rows: NDArray[np.intp], added: tuple[int, int] = (0, 0)) -> int:
    """Return the mean of the allocated shares of CPU and memory in a domain, in percent.

    Args:
        added: CPU in millicores and memory in bytes of further pods.
    """
    shares = []
    for row, name in enumerate(("cpu", "memory")):
        column = nodes.resources.find(name)
        # Sums over a domain may exceed int64.
        capacity = 0 if column is None else sum(nodes.allocatable[column][rows].tolist())
        used = sum(nodes.nonzero_requested[row][rows].tolist()) + added[row]
        if capacity:
            shares.append(min(used, capacity) * _MOST_POINTS // capacity)
    return sum(shares) // len(shares) if shares else 0


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a request, within the nodes of its parent.

    Attributes:
        topology: Its topology; None for none.
        gangs: The gangs below the group, or itself.
        needed: How many of them must be placed.
        exempts: What the profile ignores; None for nothing.
    """

    key: GroupKey
    topology: GroupTopology | None
    gangs: Sequence[Gang]
    members: Sequence[PodInfo]
    needed: int
    within: Where = ANYWHERE
    exempts: Exempts | None = None

    def domains(self, cache: ClusterCache) -> list[Domain]:
        """Return the domains of its topology, as :func:`candidate_domains` does; none of its members is assumed."""
        if self.topology is None:
            return []
        placed = scheduled_members(cache, self.gangs)
        return candidate_domains(
            cache.columns,
            self.topology,
            self.members,
            self.needed,
            placed=placed,
            within=self.within.mask,
            exempts=self.exempts,
        )


def gang_subsets(cache: ClusterCache, group: Group) -> list[tuple[Where, int]]:
    """Return the domains of a gang that have enough room, else the nearest; then all nodes, if the gang allows it."""
    domains = group.domains(cache)
    enough = [domain for domain in domains if domain.room >= group.needed]
    found = [(domain.where, domain.room) for domain in enough or domains[:1]]
    return found if group.topology is not None and group.topology.is_required else [*found, (ANYWHERE, _UNBOUNDED)]


def all_subsets(
    cache: ClusterCache, group: Group, admits: Callable[[Domain], bool] = lambda _: True
) -> Iterator[tuple[Where, int]]:
    """Yield the domains of a gang that are admitted, whatever their room is, and all nodes if the gang allows it."""
    for domain in group.domains(cache):
        if admits(domain):
            yield domain.where, domain.room
    if group.topology is None or not group.topology.is_required:
        yield ANYWHERE, _UNBOUNDED


def tree_subsets(cache: ClusterCache, group: Group) -> list[tuple[Where, int]]:
    """Return all domains of a group of a tree, each with its room; those without enough room come last."""
    if group.topology is None:
        return [(group.within, _UNBOUNDED)]
    found, outer = [], group.within.name
    for domain in group.domains(cache):
        where = domain.where
        found.append((replace(where, name=f"{outer}, {where.name}") if outer else where, domain.room))
    return found


def scheduled_members(cache: ClusterCache, gangs: Iterable[Gang]) -> list[PodInfo]:
    """Return the members of some gangs that have a node."""
    # Sorted, because the domain is that of the first member and must not depend on hashes.
    uids = (uid for gang in gangs for uid in sorted(gang.placed))
    return [held.info for uid in uids if (held := cache.get(uid)) is not None]


def scattered_members(nodes: NodeColumns, topology: GroupTopology, placed: Sequence[PodInfo]) -> str:
    """Return why scheduled members share no domain, in the words of kube-scheduler v1.37.1; "" if they do."""
    column, shared, problem = nodes.label_column(topology.key), "", ""
    for info in placed:
        if info.row == NO_ROW:
            continue
        number = int(column.ids[info.row])
        domain = (column.values.keys[number] or "") if number >= 0 else ""
        if number < 0:
            problem = f"no topology domain found for pod {info.key}"
        elif shared and shared != domain:
            problem = f"more than 1 domain found for pod group: {shared}, {domain}"
        if problem:
            return f"cannot determine domain for already scheduled pods: {problem}"
        shared = domain
    return ""


def domain_of_members(nodes: NodeColumns, topology: GroupTopology, placed: Iterable[PodInfo]) -> Where | None:
    """Return the domain of the group's key that contains the scheduled members; None for none."""
    column = nodes.label_column(topology.key)
    for info in placed:
        if info.row != NO_ROW and column.ids[info.row] >= 0:
            number = int(column.ids[info.row])
            return _where((column.ids == number) & nodes.alive, f"{topology.key}={column.values.keys[number] or ''}")
    return None


def _where(subset: NodeSubset | NDArray[np.bool_], name: str) -> Where:
    return Where(subset, f"node(s) were outside the gang's domain {name}", name)


@dataclass(frozen=True, slots=True)
class GangDomains:
    """Domains of gangs that require one; implements :class:`scheduler_core.cycle.gang_constraints.MemberDomains`."""

    cache: ClusterCache
    gangs: Gangs

    def of_member(self, uid: str) -> Where | None:
        """Return the domain of the scheduled members of a pod's gang; None for none, or if the gang requires none."""
        gang = self.gangs.of_uid(uid)
        if gang is None or gang.group is None:
            return None
        topology = gang.group.topology
        found = None if topology is None or not topology.is_required else self._shared(topology, [gang])
        for above, gangs in () if gang.tree is None else gang.tree.topologies_of(gang):
            outer = self._shared(above, gangs)
            if outer is not None and outer.mask is not None and found is not None and found.mask is not None:
                found = Where(outer.mask & found.mask, found.reason, f"{outer.name}, {found.name}")
            else:
                found = outer or found
        return found

    def _shared(self, topology: GroupTopology, gangs: Iterable[Gang]) -> Where | None:
        """Return the domain of the scheduled members of some gangs; None for none."""
        return domain_of_members(self.cache.columns, topology, scheduled_members(self.cache, gangs))


def count_domains(nodes: NodeColumns, topology: GroupTopology) -> int:
    """Return the number of domains of the group's key."""
    ids = nodes.label_column(topology.key).ids
    return len(np.unique(ids[nodes.alive & (ids >= 0)]))


def _domains(
    nodes: NodeColumns, keys: tuple[str, str], room: NDArray[np.int64], within: NDArray[np.bool_] | None
) -> list[Domain]:
    """Return the domains of a level of the group's topology."""
    key, group_key = keys
    inner, outer = nodes.label_column(key), nodes.label_column(group_key)
    here = nodes.alive & (inner.ids >= 0) & (outer.ids >= 0)
    if within is not None:
        here &= within
    # By pairs: equal values in different domains of the group's key are different domains.
    pairs, members = np.unique(np.stack((outer.ids[here], inner.ids[here])), axis=1, return_inverse=True)
    numbers = np.full(nodes.size, NO_SUBSET, dtype=np.int32)
    numbers[here] = members.reshape(-1)
    subsets = NodeSubsets(numbers, pairs.shape[1])
    found = []
    for number, ((outside, inside), amount) in enumerate(zip(pairs.T.tolist(), subsets.sums(room), strict=True)):
        value = inner.values.keys[inside] or ""
        if key != group_key:
            value = f"{value} in {outer.values.keys[outside]}"
        found.append(Domain(key, value, subsets[number], amount))
    return found


def exempted_resources(instance: FrameworkInstance) -> Exempts | None:
    """Return what the filters of a profile ignore; None if they ignore nothing."""
    filters = [each for each in instance.filters if isinstance(each, SumsFilter)]
    has_ports = any(isinstance(each, PortsFilter) for each in instance.filters)
    if filters and has_ports and not any(each.exempts_resources for each in filters):
        return None
    return Exempts(
        # Without such a filter all resources.
        lambda name: all(each.exempts(name) for each in filters),
        amounts=not filters,
        ports=not has_ports,
        shares=not any(isinstance(each, SumsFilter) for each in instance.plugins.values()),
    )


def member_room(
    nodes: NodeColumns, members: Sequence[PodInfo], *, when_empty: bool = False, exempts: Exempts | None = None
) -> NDArray[np.int64]:
    """Return the room of each node in members, int64 per row, by resources, pod count and host ports; an upper bound.

    A resource that a device class serves limits only nodes that offer some of it, as in NodeResourcesFit. A node that
    no filter counts has room for all members.

    Args:
        when_empty: Whether to compute the room without the pods that are on the nodes.
        exempts: What does not count; None if all counts.
    """
    smallest = counted_amounts(nodes, members[0], exempts) if members else {}
    ports = set(members[0].host_ports) if members and (exempts is None or not exempts.ports) else set()
    # The smallest request of each resource counts: room may be too much, and never too little.
    for info in members:
        amounts = counted_amounts(nodes, info, exempts)
        smallest = {column: min(amount, amounts[column]) for column, amount in smallest.items() if column in amounts}
        ports.intersection_update(info.host_ports)
    if exempts is not None and exempts.amounts:
        free_slots = np.full(nodes.size, len(members), dtype=np.int64)
    else:
        free_slots = nodes.allowed_pods - (0 if when_empty else nodes.pod_count)
    # Members that have a host port in common need a node each.
    room = np.clip(free_slots, 0, 1 if ports else None).astype(np.int64)
    for (column, is_by_devices), amount in smallest.items():
        offered = nodes.allocatable[column]
        of_column = np.maximum(0, offered - (0 if when_empty else nodes.requested[column])) // amount
        room = np.minimum(room, np.where(offered == 0, room, of_column) if is_by_devices else of_column)
    return np.where(nodes.alive, room, 0)


def counted_amounts(nodes: NodeColumns, info: PodInfo, exempts: Exempts | None = None) -> dict[tuple[int, bool], int]:
    """Return the requests of a pod by the column of the resource, and whether a device class serves the resource."""
    devices = nodes.devices
    if not devices.classes and exempts is None:
        return {(column, False): amount for column, amount in info.fit}
    return {
        (column, devices.class_of_resource(name) is not None): amount
        for (column, amount), name in zip(info.fit, info.fit_names, strict=True)
        if exempts is None or not exempts.resource(name)
    }


def member_orders(members: Sequence[QueuedPod]) -> list[Sequence[QueuedPod]]:
    """Return the orders in which members are tried: as given, then the largest first."""
    if len({pod.info.fit for pod in members}) <= 1:
        return [members]
    # Large members packed first leave gaps that small ones fill.
    return [members, sorted(members, key=lambda pod: sorted(pod.info.fit), reverse=True)]


FeasibleRows = Callable[[FrameworkInstance, QueuedPod], Feasible | None]
"""Returns where a member is feasible in any domain, with the complete diagnosis; None if that cannot be decided."""


class DomainScreen:
    """Rules out domains for one group of one search, as long as nothing is assumed that it has not seen.

    Attributes:
        ruled_out: Names of the domains that were ruled out.
    """

    def __init__(self, instance: FrameworkInstance, needed: int, feasible_rows: FeasibleRows) -> None:
        self._instance = instance
        self._needed = needed
        self._feasible_rows = feasible_rows
        self._masks: dict[tuple[str, ...], NDArray[np.bool_] | None] = {}
        self._of_class: dict[object, NDArray[np.bool_] | None] = {}
        self.ruled_out: dict[str, None] = {}
        self.rejected_by: set[str] = set()
        self.pending_on: set[str] = set()

    def none_feasible(self, order: Sequence[QueuedPod]) -> None:
        """Screen further domains for this order of members: a try has failed without a feasible member."""
        tried = self._first(order)
        # With a topology such as the hostname there are as many domains as nodes. Filters return the same for a node
        # whichever domain is tried, so one run over all nodes decides for all domains.
        if tried not in self._masks:
            self._masks[tried] = self._mask(order)

    def rules_out(self, where: Where, order: Sequence[QueuedPod]) -> bool:
        """Return whether no member that a try of this order would try is feasible in a domain."""
        if not self._masks or where.rows is None:
            return False
        mask = self._masks.get(self._first(order))
        if mask is None or mask[where.rows].any():
            return False
        self.ruled_out[where.name] = None
        return True

    def _first(self, order: Sequence[QueuedPod]) -> tuple[str, ...]:
        """Return the UIDs of the members that are tried until the quorum is out of reach."""
        return tuple(queued.uid for queued in order[: max(1, len(order) - self._needed + 1)])

    def _mask(self, order: Sequence[QueuedPod]) -> NDArray[np.bool_] | None:
        """Return the rows on which one of these members is feasible, bool per row; None if that cannot be decided."""
        found: NDArray[np.bool_] | None = None
        for queued in order[: max(1, len(order) - self._needed + 1)]:
            pod_class = filter_class(self._instance, queued.info)
            if pod_class not in self._of_class:
                self._of_class[pod_class] = self._feasible(queued)
            mask = self._of_class[pod_class]
            if mask is None:
                return None
            found = mask if found is None else found | mask
        return found

    def _feasible(self, queued: QueuedPod) -> NDArray[np.bool_] | None:
        feasible = self._feasible_rows(self._instance, queued)
        if feasible is None:
            return None
        self.rejected_by |= feasible.diagnosis.rejected_by | {GANG_SCHEDULING}
        self.pending_on |= feasible.diagnosis.pending_on
        mask = np.zeros(len(feasible.diagnosis.verdicts), dtype=np.bool_)
        mask[feasible.rows] = True
        return mask
