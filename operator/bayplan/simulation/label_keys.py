"""Merges ``matchLabelKeys`` and ``mismatchLabelKeys`` into label selectors, as the API server does on creation.

Plugins read only the selectors, since in a cluster the keys are already merged into them. Follows Kubernetes v1.37.1,
``pkg/registry/core/pod/strategy.go``; a pod that went through an API server is unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.pod import PodSpec


def merge_label_keys(spec: PodSpec, labels: Mapping[str, str]) -> PodSpec:
    """Merge the keys of a pod's spread constraints and pod affinity terms into their selectors.

    Args:
        labels: The pod's labels; a key that is not among them adds nothing.

    Returns:
        The spec; the same object if there is nothing to merge.
    """
    if any(constraint.match_label_keys for constraint in spec.topology_spread_constraints):
        constraints = tuple(
            replace(each, label_selector=_merged(each.label_selector, _wanted(each.match_label_keys, "In", labels)))
            for each in spec.topology_spread_constraints
        )
        spec = replace(spec, topology_spread_constraints=constraints)
    affinity = spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return spec
    merged = Affinity(
        affinity.node_affinity, _terms(affinity.pod_affinity, labels), _terms(affinity.pod_anti_affinity, labels)
    )
    return spec if merged == affinity else replace(spec, affinity=merged)


def _terms(affinity: PodAffinity | None, labels: Mapping[str, str]) -> PodAffinity | None:
    if affinity is None:
        return None
    return PodAffinity(
        tuple(_term(term, labels) for term in affinity.required),
        tuple(
            replace(weighted, pod_affinity_term=_term(weighted.pod_affinity_term, labels))
            for weighted in affinity.preferred
        ),
    )


def _term(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    wanted = [*_wanted(term.match_label_keys, "In", labels), *_wanted(term.mismatch_label_keys, "NotIn", labels)]
    return replace(term, label_selector=_merged(term.label_selector, wanted)) if wanted else term


def _wanted(keys: Iterable[str], operator: str, labels: Mapping[str, str]) -> list[Requirement]:
    return [Requirement(key, operator, (labels[key],)) for key in keys if key in labels]


def _merged(selector: LabelSelector | None, wanted: Iterable[Requirement]) -> LabelSelector | None:
    """Add requirements to a selector; an absent selector matches nothing and stays absent."""
    if selector is None:
        return None
    missing = tuple(requirement for requirement in wanted if requirement not in selector.match_expressions)
    return replace(selector, match_expressions=(*selector.match_expressions, *missing)) if missing else selector
