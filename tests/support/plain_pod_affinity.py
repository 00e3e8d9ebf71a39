"""InterPodAffinity for one node and one pod at a time: what the vectorised form is held against.

Owns a second, independent reading of kube-scheduler v1.36.3 (``plugins/interpodaffinity/*.go``) on decoded objects. It
must not import what it judges.
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
    """Nodes, the pods on them, and the labels of known namespaces."""

    nodes: Sequence[Node]
    pods: Sequence[Pod]
    namespaces: Mapping[str, Labels] = field(default_factory=dict)

    def placed(self) -> Iterable[tuple[Pod, Node]]:
        """Pods whose node is known, with it."""
        by_name = {node.metadata.name: node for node in self.nodes}
        for pod in self.pods:
            node = by_name.get(pod.spec.node_name)
            if node is not None:
                yield pod, node


def plain_rejection(pod: Pod, node: Node, cluster: PlainCluster) -> str:
    """Why the node is ruled out: affinity, anti-affinity or existing; "" if it is not."""
    wanted, unwanted, refusing = _counts(pod, cluster)
    labels = node.metadata.labels
    terms = _affinity(pod).required
    if any(term.topology_key not in labels for term in terms):
        return "affinity"
    if any(wanted[term.topology_key, labels[term.topology_key]] <= 0 for term in terms):
        is_first = not wanted and all_own_terms_match(terms, pod, pod, cluster.namespaces)
        if not is_first:
            return "affinity"
    for term in _anti_affinity(pod).required:
        if term.topology_key in labels and unwanted[term.topology_key, labels[term.topology_key]] > 0:
            return "anti-affinity"
    if any(refusing[pair] > 0 for pair in labels.items()):
        return "existing"
    return ""


def _counts(pod: Pod, cluster: PlainCluster) -> tuple[_Pairs, _Pairs, _Pairs]:
    wanted: _Pairs = Counter()
    unwanted: _Pairs = Counter()
    refusing: _Pairs = Counter()
    for other, node in cluster.placed():
        terms = _affinity(pod).required
        if all_own_terms_match(terms, pod, other, cluster.namespaces):
            _note(wanted, terms, node)
        for term in _anti_affinity(pod).required:
            if own_term_matches(term, pod, other, cluster.namespaces):
                _note(unwanted, [term], node)
        for term in _anti_affinity(other).required:
            if carried_term_matches(term, other, pod, cluster.namespaces):
                _note(refusing, [term], node)
    return wanted, unwanted, refusing


def _note(pairs: _Pairs, terms: Iterable[PodAffinityTerm], node: Node) -> None:
    for term in terms:
        if term.topology_key in node.metadata.labels:
            pairs[term.topology_key, node.metadata.labels[term.topology_key]] += 1


def plain_score(pod: Pod, node: Node, cluster: PlainCluster, hard_weight: int = 1) -> int:
    """The sum of the weights that meet in the node's domains."""
    weights: _Pairs = Counter()
    for other, where in cluster.placed():
        for sign, own in ((1, _affinity(pod)), (-1, _anti_affinity(pod))):
            for entry in own.preferred:
                if own_term_matches(entry.pod_affinity_term, pod, other, cluster.namespaces):
                    _weigh(weights, entry.pod_affinity_term, where, sign * entry.weight)
        for entry, sign in _carried(other, hard_weight):
            if carried_term_matches(entry.pod_affinity_term, other, pod, cluster.namespaces):
                _weigh(weights, entry.pod_affinity_term, where, sign * entry.weight)
    return sum(weights[pair] for pair in node.metadata.labels.items())


def _carried(other: Pod, hard_weight: int) -> Iterable[tuple[WeightedPodAffinityTerm, int]]:
    if hard_weight > 0:
        for term in _affinity(other).required:
            yield WeightedPodAffinityTerm(hard_weight, term), 1
    for entry in _affinity(other).preferred:
        yield entry, 1
    for entry in _anti_affinity(other).preferred:
        yield entry, -1


def _weigh(weights: _Pairs, term: PodAffinityTerm, node: Node, weight: int) -> None:
    value = node.metadata.labels.get(term.topology_key)
    if value is not None:
        weights[term.topology_key, value] += weight


def plain_normalized(raw: Sequence[int]) -> list[int]:
    """Lowest to 0, highest to 100."""
    span = max(raw) - min(raw)
    return [int(100.0 * ((score - min(raw)) / span)) if span else 0 for score in raw]


def _affinity(pod: Pod) -> PodAffinity:
    affinity = pod.spec.affinity
    return PodAffinity() if affinity is None or affinity.pod_affinity is None else affinity.pod_affinity


def _anti_affinity(pod: Pod) -> PodAffinity:
    affinity = pod.spec.affinity
    return PodAffinity() if affinity is None or affinity.pod_anti_affinity is None else affinity.pod_anti_affinity
