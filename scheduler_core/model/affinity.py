"""Decoded selectors: label selectors, and the node selectors of affinity and of persistent volumes.

:mod:`scheduler_core.model.selectors` implements the matching.
"""

from __future__ import annotations

from msgspec import Struct


class Requirement(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """One expression; ``operator`` is In, NotIn, Exists or DoesNotExist, for nodes also Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, gc=False, frozen=True, rename="camel"):
    """``metav1.LabelSelector``: empty matches everything; a missing one (None) matches nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Expressions on labels and fields (``metadata.name`` only) that must all match; empty matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct, gc=False, frozen=True, rename="camel"):
    """A term that adds ``weight`` (1 to 100) to the score of matching nodes."""

    weight: int
    preference: NodeSelectorTerm = NodeSelectorTerm()


_AFFINITY_NAMES = {
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}


class NodeAffinity(Struct, gc=False, frozen=True, rename=_AFFINITY_NAMES):
    """``spec.affinity.nodeAffinity``, with ``required`` and ``preferred`` for the long field names."""

    required: NodeSelector | None = None
    preferred: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(Struct, gc=False, frozen=True, rename="camel"):
    """A term of pod (anti-)affinity; the API server has merged ``match_label_keys`` into the selector."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Struct, gc=False, frozen=True, rename="camel"):
    weight: int
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct, gc=False, frozen=True, rename=_AFFINITY_NAMES):
    """``spec.affinity.podAffinity`` or ``podAntiAffinity``."""

    required: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Struct, gc=False, frozen=True, rename="camel"):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None
