"""Requests of "would it fit?" from manifests, and the documents that answer them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class FitBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Body of a request to the operator.

    Attributes:
        objects: Manifests of pods, workloads and groups.
        namespace: Namespace of objects without one; "" for ``default``.
        profile: schedulerName of all pods; "" for their own.
        count: Number of copies of the pod, or of replicas of the workload; None for that of the manifest.
        node_template: Manifest of a Node that could be added; None for none.
        node_template_slices: Manifests of its ResourceSlices.
        node: Name of a node whose copies could be added; "" for none.
        max_new: Maximum number of new nodes.
        evictions: Whether preemption is considered.
    """

    objects: list[dict[str, Any]]
    namespace: str = ""
    profile: str = ""
    count: int | None = None
    node_template: dict[str, Any] | None = None
    node_template_slices: list[dict[str, Any]] = []
    node: str = ""
    max_new: int = 100
    evictions: bool = True
