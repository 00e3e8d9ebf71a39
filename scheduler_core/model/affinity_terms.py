"""Compiled terms of inter-pod (anti-)affinity.

Compiled terms are hashable and canonical, because pods are counted per distinct term, not per pod that has it.

Follows ``k8s.io/kube-scheduler`` v0.37.1 ``framework/types.go`` (``AffinityTerm``).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from scheduler_core.errors import SelectorError
from scheduler_core.model.affinity import PodAffinity, PodAffinityTerm
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import MATCH_NOTHING, LabelMatcher, compile_label_selector


class PodQuery(Struct, gc=False, frozen=True):
    """Selects pods by their labels, in namespaces that are named or selected by labels.

    Attributes:
        namespace_selector: Selects namespaces in addition to the named ones.
    """

    selector: LabelMatcher
    namespaces: frozenset[str] = frozenset()
    namespace_selector: LabelMatcher = MATCH_NOTHING

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> bool:
        """Return whether the query selects a pod.

        Args:
            namespace_labels: The labels of the namespace; None if they are not known.
        """
        if namespace not in self.namespaces:
            everything = self.namespace_selector.is_everything
            if not everything and (namespace_labels is None or not self.namespace_selector.matches(namespace_labels)):
                return False
        return self.selector.matches(labels)


class AffinityTerm(Struct, gc=False, frozen=True):
    """A query with a topology key; ``weight`` is 0 for required terms."""

    query: PodQuery
    topology_key: str
    weight: int = 0


class AffinityTerms(Struct, gc=False, frozen=True):
    """All terms of one pod; ``problem`` is the reason why some are invalid; the list of their kind is then empty."""

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    preferred_anti: tuple[AffinityTerm, ...] = ()
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the pod has no terms."""
        return not (self.required or self.required_anti or self.preferred or self.preferred_anti or self.problem)


NO_TERMS = AffinityTerms()


def affinity_terms(pod: Pod) -> AffinityTerms:
    """Return the compiled terms of a pod."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    namespace = pod.metadata.namespace
    problems: list[str] = []

    def required(of: PodAffinity | None) -> tuple[AffinityTerm, ...]:
        try:
            return () if of is None else tuple(_term(term, namespace, 0) for term in of.required)
        except SelectorError as error:
            problems.append(str(error))
            return ()

    def preferred(of: PodAffinity | None) -> tuple[AffinityTerm, ...]:
        try:
            entries = () if of is None else of.preferred
            return tuple(_term(entry.pod_affinity_term, namespace, entry.weight) for entry in entries)
        except SelectorError as error:
            problems.append(str(error))
            return ()

    return AffinityTerms(
        required(affinity.pod_affinity),
        required(affinity.pod_anti_affinity),
        preferred(affinity.pod_affinity),
        preferred(affinity.pod_anti_affinity),
        "; ".join(problems),
    )


def _term(term: PodAffinityTerm, own_namespace: str, weight: int) -> AffinityTerm:
    names = term.namespaces
    if not names and term.namespace_selector is None:
        names = (own_namespace,)
    query = PodQuery(
        compile_label_selector(term.label_selector),
        frozenset(names),
        compile_label_selector(term.namespace_selector),
    )
    return AffinityTerm(query, term.topology_key, weight)
