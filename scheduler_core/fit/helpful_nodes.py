"""Which new nodes would help pods that wait: copies of present nodes, and the least number of them.

At most :data:`_MAX_SHAPES` shapes of nodes are tried, and a few numbers of each from a proved bound upwards, because an
explanation must not take longer than the attempt that it explains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler_core.errors import AllocationError, AttemptLimitError
from scheduler_core.explain.findings import HelpfulNode, NewNodes
from scheduler_core.fit.node_bounds import NodeBounds
from scheduler_core.fit.requests import FitRequest, NodeTemplate, lasting_taints
from scheduler_core.fit.trial import Trial, TrialParts
from scheduler_core.model.node import HOSTNAME, Node
from scheduler_core.placement.subsets import counted_amounts, member_room
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from scheduler_core.snapshot.pod_info import PodInfo

_MAX_SHAPES = 8
_MAX_LISTED = 3
_MAX_TRIALS = 3
"""Numbers of new nodes that are tried of one shape, from the bound upwards."""
_MAX_NEW = 100
_MAX_SAMPLED = 512
"""Nodes whose shapes are compared."""
_NODES_PER_STEP = 10
_MAX_AFFINITIES = 16
"""Node affinities of the pods that are read; further ones are left out."""


@dataclass(frozen=True, slots=True)
class HelpfulNodeFinder:
    """Finds new nodes that would help waiting pods, between two cycles; nothing is changed.

    Args:
        make_parts: Builds the parts of one trial.
    """

    make_parts: Callable[[], TrialParts]

    def find(self, request: FitRequest, members: Collection[str], needed: int) -> NewNodes:
        """Return the shapes of new nodes with which pods would be scheduled without evictions, fewest nodes first.

        Args:
            request: Pods that wait, with the gangs that they are members of; its template and its numbers are ignored.
            members: UIDs of the pods that are meant.
            needed: How many of them must have a node.

        Raises:
            SchedulerCoreError: A pod cannot be compiled.
        """
        parts = self.make_parts()
        nodes, steps = parts.cache.columns, parts.world.steps
        infos = [nodes.compile_pod(pod) for pod in request.pods]
        found: list[tuple[int, tuple[int, ...], str]] = []
        tried, is_complete = 0, True
        try:
            steps.spend(1 + min(nodes.count, _MAX_SAMPLED) // _NODES_PER_STEP)
            has_bounds = NodeBounds(nodes, parts.profiles, None).counts_amounts(infos)
            for name in list(node_shapes(nodes, infos, counts_amounts=has_bounds))[:_MAX_SHAPES]:
                template = NodeTemplate.of_node(nodes, name)
                assert template is not None, "the name is that of a node"
                count = self._least(replace(request, template=template), infos, members, needed)
                tried += 1
                if count:
                    found.append((count, _size(nodes, name), name))
        except AttemptLimitError:
            is_complete = False
        helpful = tuple(HelpfulNode(name, count) for count, _, name in sorted(found)[:_MAX_LISTED])
        return NewNodes(helpful, tried, is_complete)

    def _least(self, request: FitRequest, infos: Sequence[PodInfo], members: Collection[str], needed: int) -> int:
        """Return the least number of new nodes of one shape that suffices; 0 if none of the numbers tried does."""
        parts = self.make_parts()
        bounds = NodeBounds(parts.cache.columns, parts.profiles, request.template)
        least = max(1, bounds.least_new_nodes(request, infos, needed))
        for count in range(least, min(least + _MAX_TRIALS, _MAX_NEW + 1)):
            trial = Trial(self.make_parts(), request, new_nodes=count, reserves=len(infos) > 1)
            placed = trial.run(infos).nodes
            if sum(uid in placed for uid in members) >= needed:
                return count
        return 0


def node_shapes(nodes: NodeColumns, infos: Sequence[PodInfo], *, counts_amounts: bool = True) -> Iterator[str]:
    """Yield one node of each shape that has room for one of some pods when it is empty, the most frequent shape first.

    Nodes of a shape offer the same amounts and devices, and have the same labels and taints, without labels that most
    nodes have with a value of their own. Of a large cluster a sample is compared.

    Args:
        counts_amounts: Whether the profiles of the pods reject nodes without room; otherwise all shapes are yielded.
    """
    has_room = member_room(nodes, infos, when_empty=True) > 0 if counts_amounts else nodes.alive
    rows = np.flatnonzero(has_room)
    # Nodes that the pods select stand for their shape, and are tried before others: a pool may be rare, and in a small
    # cluster most nodes have a zone of their own.
    selected = _selected(nodes, infos, rows)
    rows = selected if len(selected) else rows
    if len(rows) > _MAX_SAMPLED:
        rows = rows[np.linspace(0, len(rows) - 1, _MAX_SAMPLED).astype(np.int64)]
    sample = [node for row in rows.tolist() if (node := nodes.nodes[row]) is not None]
    values = Counter(key for key, _ in {pair for node in sample for pair in node.metadata.labels.items()})
    own = {HOSTNAME, *(key for key, count in values.items() if count > max(1, len(sample) // 2))}
    shapes: dict[object, list[str]] = {}
    has_claims = any(
        info.pod.spec.resource_claims or any(is_by_devices for _, is_by_devices in counted_amounts(nodes, info))
        for info in infos
    )
    for node in sample:
        devices = _devices(nodes, node) if has_claims else ()
        shapes.setdefault((_shape(node, own), devices), []).append(node.metadata.name)
    yield from (min(names) for names in sorted(shapes.values(), key=lambda names: (-len(names), min(names))))


def _selected(nodes: NodeColumns, infos: Sequence[PodInfo], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return those of some rows that match the node selector and required affinity of a pod, intp[k]."""
    matching, found = NodeMatching(nodes), np.zeros(len(rows), dtype=np.bool_)
    for affinity in list({info.node_affinity for info in infos})[:_MAX_AFFINITIES]:
        matches = matching.required(affinity, rows)
        if matches is None:
            return rows
        found |= matches
    return rows[found]


def _shape(node: Node, own: Collection[str]) -> object:
    labels = frozenset(pair for pair in node.metadata.labels.items() if pair[0] not in own)
    taints = frozenset((taint.key, taint.value, taint.effect) for taint in lasting_taints(node))
    return frozenset(node.status.allocatable.items()), labels, taints


def _devices(nodes: NodeColumns, node: Node) -> tuple[tuple[str, int], ...]:
    """Return what devices a node has, by driver; allocatable amounts do not show devices of ResourceSlices."""
    inventory = nodes.devices.hardware.inventory
    try:
        views = inventory.pools(node.metadata.name, node.metadata.labels, node.status.declared_features)
    except AllocationError:
        return ()
    return tuple(sorted((view.key[0], view.shape.number) for view in views))


def _size(nodes: NodeColumns, name: str) -> tuple[int, ...]:
    """Return the amounts of a node, by which the smaller one of two shapes is listed first."""
    return tuple(nodes.allocatable[:, nodes.row_of(name)].tolist())
