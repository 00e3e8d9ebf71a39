"""Reference implementation of PodTopologySpread, for one pod and one node at a time.

It follows kube-scheduler v1.36.3 (``plugins/podtopologyspread/*.go``) and does not import the implementation under
test. Of the node affinity, it supports only node selectors.
"""

import math
from collections.abc import Mapping, Sequence

from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from tests.support.plain_selectors import is_empty, plain_selects

_HOSTNAME = "kubernetes.io/hostname"


class PlainSpread:
    """Spread of one incoming pod.

    Args:
        pod: Incoming pod with topology spread constraints.
        pods: Existing pods.
    """

    def __init__(self, pod: Pod, nodes: Sequence[Node], pods: Sequence[Pod]) -> None:
        self.pod = pod
        self.nodes = nodes
        self.pods = pods

    def rejection(self, node: Node) -> str:
        """Return why the node is infeasible ("missing" or "skew"), "" if it is feasible."""
        hard = self._constraints("DoNotSchedule")
        for constraint in hard:
            value = node.metadata.labels.get(constraint.topology_key)
            if value is None:
                return "missing"
            counts = self._domains(constraint, hard)
            lowest = min(counts.values(), default=0)
            if len(counts) < (constraint.min_domains or 1):
                lowest = 0
            own = int(self._selects(constraint, self.pod))
            if counts.get(value, 0) + own - lowest > constraint.max_skew:
                return "skew"
        return ""

    def scores(self, feasible: Sequence[Node]) -> list[tuple[int, int]]:
        """Return the raw and the normalised score of each feasible node."""
        soft = self._constraints("ScheduleAnyway")
        counted = [node for node in feasible if _has_keys(node, soft)]
        raw = [self._raw(node, soft, counted) if node in counted else None for node in feasible]
        present = [score for score in raw if score is not None]
        lowest, highest = min(present, default=0), max(present, default=0)
        found = []
        for score in raw:
            if score is None:
                found.append((0, 0))
            elif highest == 0:
                found.append((score, 100))
            else:
                found.append((score, 100 * (highest + lowest - score) // highest))
        return found

    def _raw(self, node: Node, soft: Sequence[TopologySpreadConstraint], counted: Sequence[Node]) -> int:
        total = 0.0
        for constraint in soft:
            key = constraint.topology_key
            if key == _HOSTNAME:
                domain_count, count = len(counted), self._on_node(constraint, node)
            else:
                domain_count = len({other.metadata.labels[key] for other in counted})
                count = self._domains(constraint, soft).get(node.metadata.labels[key], 0)
            total += count * math.log(domain_count + 2) + (constraint.max_skew - 1)
        whole = math.floor(total)
        return whole + 1 if total - whole >= 0.5 else whole

    def _constraints(self, action: str) -> list[TopologySpreadConstraint]:
        return [one for one in self.pod.spec.topology_spread_constraints if one.when_unsatisfiable == action]

    def _domains(
        self, constraint: TopologySpreadConstraint, constraints: Sequence[TopologySpreadConstraint]
    ) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for node in self.nodes:
            if _has_keys(node, constraints) and self._includes(constraint, node):
                value = node.metadata.labels[constraint.topology_key]
                counts[value] = counts.get(value, 0) + self._on_node(constraint, node)
        return counts

    def _includes(self, constraint: TopologySpreadConstraint, node: Node) -> bool:
        if (constraint.node_affinity_policy or "Honor") == "Honor":
            selector = self.pod.spec.node_selector.items()
            if any(node.metadata.labels.get(key) != value for key, value in selector):
                return False
        if (constraint.node_taints_policy or "Ignore") == "Honor":
            for taint in node.spec.taints:
                is_hard = taint.effect in ("NoSchedule", "NoExecute")
                if is_hard and not any(each.tolerates(taint) for each in self.pod.spec.tolerations):
                    return False
        return True

    def _on_node(self, constraint: TopologySpreadConstraint, node: Node) -> int:
        if is_empty(constraint.label_selector) and not self._matched(constraint):
            return 0
        return sum(
            other.spec.node_name == node.metadata.name
            and other.metadata.namespace == self.pod.metadata.namespace
            and other.metadata.deletion_timestamp is None
            and self._selects(constraint, other)
            for other in self.pods
        )

    def _selects(self, constraint: TopologySpreadConstraint, pod: Pod) -> bool:
        matched = LabelSelector(match_labels=self._matched(constraint))
        labels = pod.metadata.labels
        return plain_selects(constraint.label_selector, labels) and plain_selects(matched, labels)

    def _matched(self, constraint: TopologySpreadConstraint) -> dict[str, str]:
        labels = self.pod.metadata.labels
        return {key: labels[key] for key in constraint.match_label_keys if key in labels}


def _has_keys(node: Node, constraints: Sequence[TopologySpreadConstraint]) -> bool:
    return all(constraint.topology_key in node.metadata.labels for constraint in constraints)
