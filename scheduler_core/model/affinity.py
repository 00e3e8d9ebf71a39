"""Selectors as decoded: label selectors, and the node selectors of affinity and of persistent volumes.

Owns the wire form only; matching lives in :mod:`scheduler_core.model.selectors`.
"""

from __future__ import annotations

from msgspec import Struct


class Requirement(Struct, gc=False, frozen=True, rename="camel"):
    """One expression; ``operator`` is In, NotIn, Exists or DoesNotExist, for nodes also Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, gc=False, frozen=True, rename="camel"):
    """``metav1.LabelSelector``: empty matches everything; absent (None where it is used) matches nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Struct, gc=False, frozen=True, rename="camel"):
    """Expressions on labels and on fields (``metadata.name`` only), all of which must hold; empty matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Struct, gc=False, frozen=True, rename="camel"):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct, gc=False, frozen=True, rename="camel"):
    """A term that adds ``weight`` (1 to 100) to the score of the nodes that it matches."""

    weight: int
    preference: NodeSelectorTerm = NodeSelectorTerm()


_AFFINITY_NAMES = {
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}


class NodeAffinity(Struct, gc=False, frozen=True, rename=_AFFINITY_NAMES):
    """``spec.affinity.nodeAffinity``, its long wire names cut to ``required`` and ``preferred``."""

    required: NodeSelector | None = None
    preferred: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(Struct, gc=False, frozen=True, rename="camel"):
    """One term of pod (anti-)affinity; ``match_label_keys`` are already merged into the selector by the API server."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Struct, gc=False, frozen=True, rename="camel"):
    """A preferred term and its weight (1 to 100)."""

    weight: int
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Struct, gc=False, frozen=True, rename=_AFFINITY_NAMES):
    """``spec.affinity.podAffinity`` or ``podAntiAffinity``."""

    required: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Struct, gc=False, frozen=True, rename="camel"):
    """``spec.affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None
