"""Reference implementation of InterPodAffinity, for one pod and one node at a time.

It follows kube-scheduler v1.36.3 (``plugins/interpodaffinity/*.go``) and does not import the implementation under test.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.model.affinity import PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.plain_selectors import Labels, all_own_terms_match, carried_term_matches, own_term_matches

_Pairs = Counter[tuple[str, str]]


@dataclass
class PlainCluster:
    """Nodes, pods, and the labels of existing namespaces."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    namespaces: Mapping[str, Labels] = field(default_factory=dict)

    def bound(self) -> Iterable[tuple[Pod, Node]]:
        """Yield the pods whose node exists, with the node."""
        by_name = {node.metadata.name: node for node in self.nodes}
        for pod in self.pods:
            node = by_name.get(pod.spec.node_name)
            if node is not None:
                yield pod, node


def plain_rejection(pod: Pod, node: Node, cluster: PlainCluster) -> str:
    """Return why the node is infeasible ("affinity", "anti-affinity" or "existing"), "" if it is feasible."""
    affinity, anti_affinity, existing = _counts(pod, cluster)
    labels = node.metadata.labels
    terms = _affinity(pod).required
    if any(term.topology_key not in labels for term in terms):
        return "affinity"
    if any(affinity[term.topology_key, labels[term.topology_key]] <= 0 for term in terms):
        is_first = not affinity and all_own_terms_match(terms, pod, pod, cluster.namespaces)
        if not is_first:
            return "affinity"
    for term in _anti_affinity(pod).required:
        if term.topology_key in labels and anti_affinity[term.topology_key, labels[term.topology_key]] > 0:
            return "anti-affinity"
    if any(existing[pair] > 0 for pair in labels.items()):
        return "existing"
    return ""


def _counts(pod: Pod, cluster: PlainCluster) -> tuple[_Pairs, _Pairs, _Pairs]:
    affinity: _Pairs = Counter()
    anti_affinity: _Pairs = Counter()
    existing: _Pairs = Counter()
    for other, node in cluster.bound():
        terms = _affinity(pod).required
        if all_own_terms_match(terms, pod, other, cluster.namespaces):
            _count(affinity, terms, node)
        for term in _anti_affinity(pod).required:
            if own_term_matches(term, pod, other, cluster.namespaces):
                _count(anti_affinity, [term], node)
        for term in _anti_affinity(other).required:
            if carried_term_matches(term, other, pod, cluster.namespaces):
                _count(existing, [term], node)
    return affinity, anti_affinity, existing


def _count(pairs: _Pairs, terms: Iterable[PodAffinityTerm], node: Node) -> None:
    for term in terms:
        if term.topology_key in node.metadata.labels:
            pairs[term.topology_key, node.metadata.labels[term.topology_key]] += 1


def plain_score(pod: Pod, node: Node, cluster: PlainCluster, hard_weight: int = 1) -> int:
    """Return the raw score of the node: the sum of the weights of matching terms in its topology domains."""
    weights: _Pairs = Counter()
    for other, other_node in cluster.bound():
        for sign, own in ((1, _affinity(pod)), (-1, _anti_affinity(pod))):
            for entry in own.preferred:
                if own_term_matches(entry.pod_affinity_term, pod, other, cluster.namespaces):
                    _add_weight(weights, entry.pod_affinity_term, other_node, sign * entry.weight)
        for entry, sign in _existing_terms(other, hard_weight):
            if carried_term_matches(entry.pod_affinity_term, other, pod, cluster.namespaces):
                _add_weight(weights, entry.pod_affinity_term, other_node, sign * entry.weight)
    return sum(weights[pair] for pair in node.metadata.labels.items())


def _existing_terms(other: Pod, hard_weight: int) -> Iterable[tuple[WeightedPodAffinityTerm, int]]:
    if hard_weight > 0:
        for term in _affinity(other).required:
            yield WeightedPodAffinityTerm(hard_weight, term), 1
    for entry in _affinity(other).preferred:
        yield entry, 1
    for entry in _anti_affinity(other).preferred:
        yield entry, -1


def _add_weight(weights: _Pairs, term: PodAffinityTerm, node: Node, weight: int) -> None:
    value = node.metadata.labels.get(term.topology_key)
    if value is not None:
        weights[term.topology_key, value] += weight


def plain_normalized(raw: Sequence[int]) -> list[int]:
    """Normalise scores linearly: the lowest to 0, the highest to 100."""
    span = max(raw) - min(raw)
    return [int(100.0 * ((score - min(raw)) / span)) if span else 0 for score in raw]


def _affinity(pod: Pod) -> PodAffinity:
    affinity = pod.spec.affinity
    return PodAffinity() if affinity is None or affinity.pod_affinity is None else affinity.pod_affinity


def _anti_affinity(pod: Pod) -> PodAffinity:
    affinity = pod.spec.affinity
    return PodAffinity() if affinity is None or affinity.pod_anti_affinity is None else affinity.pod_anti_affinity
