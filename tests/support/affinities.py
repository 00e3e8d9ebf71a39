"""Builders of affinities and their terms."""

from collections.abc import Iterable

from scheduler_core.model.affinity import (
    Affinity,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Requirement,
    WeightedPodAffinityTerm,
)

Pods = PodAffinityTerm | str
"""A term, or the label ``app`` of the pods in a zone."""
Nodes = NodeSelectorTerm | Requirement
"""A term, or its only expression."""


def app(name: str) -> LabelSelector:
    """Return a selector of the pods with the label ``app``."""
    return LabelSelector({"app": name})


def term(
    pods: str | LabelSelector | None,
    key: str = "zone",
    *,
    namespaces: tuple[str, ...] = (),
    selector: LabelSelector | None = None,
) -> PodAffinityTerm:
    """Return a term of pod affinity.

    Args:
        pods: The label ``app`` of the pods, or their selector.
        key: The topology key.
        selector: Selector of namespaces.
    """
    return PodAffinityTerm(key, app(pods) if isinstance(pods, str) else pods, namespaces, selector)


def affinity_to(*required: Pods, preferred: Iterable[tuple[int, Pods]] = ()) -> Affinity:
    """Return pod affinity with required terms, and preferred ones with their weights."""
    return Affinity(pod_affinity=_pod_affinity(required, preferred))


def anti_affinity_to(*required: Pods, preferred: Iterable[tuple[int, Pods]] = ()) -> Affinity:
    """Return pod anti-affinity; see :func:`affinity_to`."""
    return Affinity(pod_anti_affinity=_pod_affinity(required, preferred))


def node_affinity(*required: Nodes, preferred: Iterable[tuple[int, Nodes]] = ()) -> Affinity:
    """Return node affinity with required terms, and preferred ones with their weights."""
    return Affinity(
        NodeAffinity(
            NodeSelector(tuple(map(_node_term, required))) if required else None,
            tuple(PreferredSchedulingTerm(weight, _node_term(each)) for weight, each in preferred),
        )
    )


def named(*names: str, operator: str = "In") -> NodeSelectorTerm:
    """Return a term on the names of nodes."""
    return NodeSelectorTerm(match_fields=(Requirement("metadata.name", operator, names),))


def _pod_affinity(required: Iterable[Pods], preferred: Iterable[tuple[int, Pods]]) -> PodAffinity:
    return PodAffinity(
        tuple(map(_pod_term, required)),
        tuple(WeightedPodAffinityTerm(weight, _pod_term(each)) for weight, each in preferred),
    )


def _pod_term(pods: Pods) -> PodAffinityTerm:
    return term(pods) if isinstance(pods, str) else pods


def _node_term(nodes: Nodes) -> NodeSelectorTerm:
    return NodeSelectorTerm((nodes,)) if isinstance(nodes, Requirement) else nodes
