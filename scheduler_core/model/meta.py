"""Object metadata as every kind carries it.

Only the fields that scheduling reads are declared: msgspec skips the rest while it decodes, which is most of what a
watch event weighs. Annotations are left out for that reason; a kind whose annotations are read declares its own
metadata.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class OwnerReference(Struct, gc=False, frozen=True, rename="camel"):
    """One entry of ``metadata.ownerReferences``."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Struct, gc=False, frozen=True, rename="camel"):
    """``metadata`` of a Kubernetes object.

    ``creation_timestamp`` and ``deletion_timestamp`` are timezone-aware (UTC on the wire); None is "not set".
    """

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class AnnotatedMeta(ObjectMeta, gc=False, frozen=True, rename="camel"):
    """Metadata of a kind whose annotations are read."""

    annotations: dict[str, str] = {}
