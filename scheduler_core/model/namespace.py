"""Namespaces as decoded from the API server: their labels, for namespace selectors."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.model.meta import ObjectMeta


class Namespace(Struct, gc=False, frozen=True):
    """A v1 Namespace."""

    metadata: ObjectMeta
