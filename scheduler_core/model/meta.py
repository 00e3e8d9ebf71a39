"""Object metadata.

Only the fields that scheduling reads are declared, because msgspec skips the others, which are most of a watch event.
Annotations are left out for that reason; kinds whose annotations are read use :class:`AnnotatedMeta`.
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

    ``creation_timestamp`` and ``deletion_timestamp`` are timezone-aware (UTC on the wire); None if not set.
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

    @property
    def controller(self) -> OwnerReference | None:
        return next((owner for owner in self.owner_references if owner.controller), None)

    def is_controlled_by(self, uid: str) -> bool:
        """Return whether the object with this UID is the controller, such as the pod of a claim that is made for it."""
        return any(owner.controller and owner.uid == uid for owner in self.owner_references)


class Condition(Struct, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class ObjectCondition(Condition, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    """A condition in the status of an object, as ``metav1.Condition``."""

    last_transition_time: datetime | None = None


class AnnotatedMeta(ObjectMeta, gc=False, frozen=True, rename="camel"):
    """Metadata with annotations."""

    annotations: dict[str, str] = {}
