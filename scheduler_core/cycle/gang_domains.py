"""In which domains of nodes a gang may be placed, the one that packs best first.

Owns the order of the tries, as a cluster's operator would wish it: the narrowest level first, and within a level the
domain that has the least room of those with enough, so that large rooms stay whole for large gangs; for groups of
Kubernetes' own API, in the order of kube-scheduler's placement scores. Room is counted in
members by their resources alone; whether they really fit is for the cycle to find out, which is why a domain with
enough room may still be tried in vain, and one without is never tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_MOST_POINTS = 100


@dataclass(frozen=True, slots=True)
class Domain:
    """Nodes that share a label's value.

    Attributes:
        key: The label.
        value: Its value.
        among: bool per row.
        room: How many members have room by their resources alone, never too few.
    """

    key: str
    value: str
    among: NDArray[np.bool_]
    room: int

    def __str__(self) -> str:
        """``key=value``."""
        return f"{self.key}={self.value}"


def candidate_domains(
    nodes: NodeColumns, topology: GroupTopology, members: Sequence[PodInfo], needed: int, placed: Sequence[PodInfo]
) -> list[Domain]:
    """Domains to try, in order; those without enough room come last, so that the nearest of them can be told.

    Args:
        nodes: The columns.
        topology: What the group asks for.
        members: The members that are to be placed.
        needed: How many of them must be.
        placed: Members that have a node already; where one domain is required, it is theirs.
    """
    room = member_room(nodes, members)
    allowed = _domain_of_placed(nodes, topology, placed) if topology.is_required else None
    found: list[Domain] = []
    for key in (*reversed(topology.levels), topology.key):
        of_level = [
            domain
            for domain in _domains(nodes, key, topology.key, room)
            if allowed is None or not (domain.among & ~allowed).any()
        ]
        if topology.prefers_allocated:
            scores = _placement_scores(nodes, of_level, members, needed)
            of_level.sort(key=lambda domain: (-scores[domain.value], domain.value))
            found += of_level
        else:
            found += sorted(of_level, key=lambda domain: (domain.room, domain.value))
    return [domain for domain in found if domain.room >= needed] + sorted(
        (domain for domain in found if domain.room < needed), key=lambda domain: -domain.room
    )


def _placement_scores(
    nodes: NodeColumns, domains: Sequence[Domain], members: Sequence[PodInfo], needed: int
) -> dict[str, int]:
    """Score domains by members that have room and by the share of cpu and memory that is then allocated.

    Follows kube-scheduler v1.36.3, plugins PodGroupPodsCount (``plugins/podgrouppodscount``) and NodeResourcesFit
    (``plugins/noderesources/resource_allocation.go``, ``scorePlacement``) with their default args. There the members
    are placed in each domain before it is scored; here their number is the room by resources.

    Returns:
        The score by the domain's value; equal scores are drawn there, and ordered by value here.
    """
    counts = {domain.value: min(len(members), domain.room) for domain in domains}
    most = max((count for domain in domains if (count := counts[domain.value]) >= needed), default=0) or 1
    scores = {}
    for domain in domains:
        count = counts[domain.value]
        placed = [info.requests for info in members[:count]]
        added = (sum(each.scored_cpu_milli for each in placed), sum(each.scored_memory for each in placed))
        shares = []
        for row, name in enumerate(("cpu", "memory")):
            column = nodes.resources.find(name)
            # Sums over a domain may exceed int64.
            capacity = 0 if column is None else sum(nodes.allocatable[column][domain.among].tolist())
            used = sum(nodes.nonzero_requested[row][domain.among].tolist()) + added[row]
            if capacity:
                shares.append(min(used, capacity) * _MOST_POINTS // capacity)
        allocated = sum(shares) // len(shares) if shares else 0
        scores[domain.value] = count * _MOST_POINTS // most + allocated
    return scores


def domain_of_members(nodes: NodeColumns, topology: GroupTopology, placed: Sequence[PodInfo]) -> Domain | None:
    """The domain of the group's key in which placed members are; None where they are in none."""
    column = nodes.label_column(topology.key)
    for info in placed:
        if info.row != NO_ROW and column.ids[info.row] >= 0:
            number = int(column.ids[info.row])
            value = column.values.keys[number]
            return Domain(topology.key, value or "", (column.ids == number) & nodes.alive, 0)
    return None


def _domain_of_placed(
    nodes: NodeColumns, topology: GroupTopology, placed: Sequence[PodInfo]
) -> NDArray[np.bool_] | None:
    domain = domain_of_members(nodes, topology, placed)
    return None if domain is None else domain.among


def _domains(nodes: NodeColumns, key: str, within: str, room: NDArray[np.int64]) -> Iterator[Domain]:
    """The domains of a level; equal values in different domains of the group's key are different domains."""
    inner, outer = nodes.label_column(key), nodes.label_column(within)
    here = nodes.alive & (inner.ids >= 0) & (outer.ids >= 0)
    pairs = np.unique(np.stack((outer.ids[here], inner.ids[here])), axis=1)
    for outside, inside in pairs.T.tolist():
        among = here & (outer.ids == outside) & (inner.ids == inside)
        value = inner.values.keys[inside] or ""
        if key != within:
            value = f"{value} in {outer.values.keys[outside]}"
        yield Domain(key, value, among, int(room[among].sum()))


def member_room(nodes: NodeColumns, members: Sequence[PodInfo]) -> NDArray[np.int64]:
    """int64 per row: how many members of the smallest size a node has room for, by free resources and pod count.

    The smallest request of each resource is taken, so that the answer is never too low.
    """
    smallest: dict[int, int] = dict(members[0].fit) if members else {}
    for info in members:
        amounts = dict(info.fit)
        smallest = {column: min(amount, amounts[column]) for column, amount in smallest.items() if column in amounts}
    room = np.maximum(0, nodes.allowed_pods - nodes.pod_count).astype(np.int64)
    for column, amount in smallest.items():
        free = nodes.allocatable[column] - nodes.requested[column]
        room = np.minimum(room, np.maximum(0, free) // amount)
    return np.where(nodes.alive, room, 0)
