"""Bounds by amounts alone: how many new nodes are needed at least, and what no node can ever take.

They prove that pods do not fit; they never prove that pods fit. The smallest request of each resource counts, as in the
room of topology domains, so that a bound never exceeds what a placement needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler_core.fit.requests import FitRequest, NodeTemplate
from scheduler_core.model.pod_group import GroupKey, PodGroup, group_key_of
from scheduler_core.model.pod_requests import amount_text
from scheduler_core.placement.subsets import candidate_domains, counted_amounts, exempted_resources, member_room
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_UNBOUNDED = 1 << 40


@dataclass(frozen=True, slots=True)
class NodeBounds:
    """Bounds for the pods of one request.

    Args:
        template: Template of new nodes; None for none.
    """

    nodes: NodeColumns
    profiles: ProfileTable
    template: NodeTemplate | None

    def least_new_nodes(self, request: FitRequest, infos: Sequence[PodInfo], needed: int | None = None) -> int:
        """Return a number of new nodes with less of which the pods do not fit; a huge one if no number helps.

        Args:
            needed: How many of the pods must fit; None for all of them.
        """
        if not infos or not self.counts_amounts(infos):
            return 0
        with ColumnsOverlay(self.nodes) as overlay:
            row = NO_ROW if self.template is None else self._added(overlay, self.template)
            room = member_room(self.nodes, infos)
            per_node = int(room[row]) if row != NO_ROW else 0
            wanted = len(infos) if needed is None else needed
            least = _nodes_for(wanted - (int(room.sum()) - per_node), per_node)
            if wanted == len(infos):
                least = max(least, self._by_sums(infos, row))
            for group, members in self._of_topologies(request, infos):
                least = max(least, self._for_group(group, members, row))
            return least

    def impossible(self, request: FitRequest, infos: Sequence[PodInfo]) -> str:
        """Return why the pods never fit on the present nodes, even if these were empty; "" if they may."""
        if not infos or not self.counts_amounts(infos):
            return ""
        room = int(member_room(self.nodes, infos, when_empty=True).sum())
        if room < len(infos):
            count = "none of the pods" if not room else f"at most {room} of the {len(infos)} pods"
            return f"even without other pods the nodes have room for {count}"
        nodes = self.nodes
        for column, amount in _sums(nodes, infos).items():
            have = sum(nodes.allocatable[column][nodes.alive].tolist())
            if amount > have:
                name = nodes.resources.keys[column] or "a resource that no node offers"
                requested, offered = amount_text(name, amount), amount_text(name, have)
                return f"the pods request {requested} of {name}, and all nodes together have {offered}"
        for group, members in self._of_topologies(request, infos):
            assert group.topology is not None
            domains = candidate_domains(
                self.nodes, group.topology, members, group.min_member, placed=(), when_empty=True
            )
            largest = max(domains, key=lambda domain: domain.room, default=None)
            if largest is None:
                return f"PodGroup {group.key}: no node has the label {group.topology.key} of its topology"
            if largest.room < group.min_member:
                return (
                    f"PodGroup {group.key}: no domain of {group.topology.key} has room for {group.min_member} members "
                    f"even without other pods; the largest, {largest}, has room for {largest.room}"
                )
        return ""

    def counts_amounts(self, infos: Sequence[PodInfo]) -> bool:
        """Return whether all profiles of the pods reject nodes with too little of a resource."""
        for name in {info.pod.spec.scheduler_name for info in infos}:
            instance = self.profiles.get(name)
            if instance is None or exempted_resources(instance) is not None:
                return False
        return True

    def _added(self, overlay: ColumnsOverlay, template: NodeTemplate) -> int:
        node, pods = next(template.copies(self.nodes))
        overlay.add_node(node, pods)
        return self.nodes.row_of(node.metadata.name)

    def _by_sums(self, infos: Sequence[PodInfo], row: int) -> int:
        """Return the least number of new nodes, such as that of the row, by the requests' sum of each resource."""
        least, nodes = 0, self.nodes
        for column, amount in _sums(nodes, infos).items():
            free = np.maximum(nodes.allocatable[column] - nodes.requested[column], 0)
            here = int(free[row]) if row != NO_ROW else 0
            have = sum(free[nodes.alive].tolist()) - here
            least = max(least, _nodes_for(amount - have, here))
        return least

    def _of_topologies(self, request: FitRequest, infos: Sequence[PodInfo]) -> list[tuple[PodGroup, list[PodInfo]]]:
        """Return the gangs of the request that require one domain, with their members; parts of trees are left out."""
        members: defaultdict[GroupKey, list[PodInfo]] = defaultdict(list)
        for info in infos:
            key = group_key_of(info.pod)
            if key is not None:
                members[key].append(info)
        groups = (group for group in request.groups if isinstance(group, PodGroup) and not group.parent)
        return [
            (group, members[group.key])
            for group in groups
            if group.topology is not None and group.topology.is_required and members[group.key]
        ]

    def _for_group(self, group: PodGroup, members: Sequence[PodInfo], row: int) -> int:
        """Return the least number of new nodes, such as that of the row, by the room of the domains of a gang."""
        assert group.topology is not None
        domains = candidate_domains(self.nodes, group.topology, members, group.min_member, placed=())
        per_node = int(member_room(self.nodes, members)[row]) if row != NO_ROW else 0
        least = _UNBOUNDED
        for domain in domains:
            has_new_node = row in domain.subset.rows
            missing = group.min_member - (domain.room - (per_node if has_new_node else 0))
            if missing <= 0:
                return 0
            if has_new_node:
                least = min(least, _nodes_for(missing, per_node))
        return least


def _sums(nodes: NodeColumns, infos: Sequence[PodInfo]) -> dict[int, int]:
    """Return what the pods request of each column; without resources that nodes may provide through devices."""
    wanted: defaultdict[int, int] = defaultdict(int)
    for info in infos:
        for (column, is_by_devices), amount in counted_amounts(nodes, info).items():
            if not is_by_devices:
                wanted[column] += amount
    return wanted


def _nodes_for(missing: int, per_node: int) -> int:
    if missing <= 0:
        return 0
    return -(-missing // per_node) if per_node > 0 else _UNBOUNDED
