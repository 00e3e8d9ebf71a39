"""What a plugin reads of the cluster beyond what the scheduler always decodes, and the view of one node.

Plugins declare it because everything else is skipped during decoding; annotations alone are often half of an object.
The struct types for decoding are derived from the declarations.

A :class:`NodeView` costs an object per node and pod; vectorized plugins read the columns instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct, defstruct

from scheduler_core.errors import RegistryError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.movable_pod import MovableMeta, MovableSpec
from scheduler_core.model.node import Node, NodeStatus
from scheduler_core.model.pod import Pod, PodStatus
from scheduler_core.model.pod_group import MarkedMeta
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class DeclaredObject(Protocol):
    """Object of a declared kind: a msgspec struct with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Metadata of the object; declare it as AnnotatedMeta to get annotations too."""


T = TypeVar("T", bound=DeclaredObject)


class ObjectKind(Struct, Generic[T], frozen=True):
    """A kind that is watched for plugins.

    Attributes:
        path: Path of its collection over all namespaces, such as ``/apis/licensing.example.com/v1/licenses``.
        struct: The msgspec struct of the fields to read; ``rename="camel"`` if its JSON fields are camelCase.
    """

    path: str
    struct: type[T]

    def event(self, action: Action) -> ClusterEvent:
        """Return the event of a change of this kind; possible actions are ADD, DELETE and UPDATE_OTHER."""
        return ClusterEvent(Resource.DECLARED_KIND, action, kind=self.path)


class StatusField(Struct, frozen=True):
    """A field of ``status`` that is decoded for plugins and read as an attribute of it.

    Attributes:
        name: In snake_case: ``node_info`` is read from ``nodeInfo``.
        default: Value where the object has none; not mutable.
    """

    name: str
    type: Any
    default: Any = None


class ObjectReads(Struct, frozen=True):
    """What a plugin reads beyond the default.

    Attributes:
        node_annotations: ``metadata.annotations`` of nodes; a change is an UPDATE_NODE_ANNOTATION event.
        pod_annotations: ``metadata.annotations`` of pods; a change on an unscheduled pod is an UPDATE_OTHER event.
        node_status: Fields of a node's status; a change is an UPDATE_NODE_CONDITION event.
        pod_status: Fields of a pod's status.
        kinds: Other kinds.
    """

    node_annotations: bool = False
    pod_annotations: bool = False
    node_status: tuple[StatusField, ...] = ()
    pod_status: tuple[StatusField, ...] = ()
    kinds: tuple[ObjectKind[Any], ...] = ()


NO_EXTRA_READS = ObjectReads()


class DecodedTypes(Struct, frozen=True):
    """Types as which nodes, pods and declared kinds are decoded."""

    node: type[Node] = Node
    pod: type[Pod] = Pod
    kinds: tuple[ObjectKind[Any], ...] = ()


def decoded_types(
    declared: Iterable[tuple[str, ObjectReads]], *, reads_marks: bool = False, plans_moves: bool = False
) -> DecodedTypes:
    """Return the types that contain what all plugins read.

    Args:
        reads_marks: Whether annotations of pods that name gangs of other schedulers, or a deletion cost, are decoded.
        plans_moves: Whether all that decides whether a pod may be moved is decoded.

    Returns:
        The scheduler's own types where no plugin reads more.

    Raises:
        RegistryError: Two plugins declare a field or kind in different forms, or a field is always decoded anyway.
    """
    reads = list(declared)
    node_status = _fields(((name, each.node_status) for name, each in reads), NodeStatus)
    pod_status = _fields(((name, each.pod_status) for name, each in reads), PodStatus)
    kinds: dict[str, tuple[str, ObjectKind[Any]]] = {}
    for name, each in reads:
        for kind in each.kinds:
            first, known = kinds.setdefault(kind.path, (name, kind))
            if known.struct is not kind.struct:
                message = f"plugins {first} and {name} read {kind.path} by different structs; let both use one"
                raise RegistryError(message)
    return DecodedTypes(
        _composed(Node, NodeStatus, node_status, annotated=any(each.node_annotations for _, each in reads)),
        _composed(
            _MovablePod if plans_moves else Pod,
            PodStatus,
            pod_status,
            annotated=any(each.pod_annotations for _, each in reads),
            marked=reads_marks and not plans_moves,
        ),
        tuple(kind for _, kind in kinds.values()),
    )


class _MovablePod(Pod, gc=False, frozen=True, omit_defaults=True, rename="camel"):
    metadata: MovableMeta
    spec: MovableSpec = MovableSpec()


# Records have the name of a type, and find its decoder by it.
_MovablePod.__name__ = Pod.__name__


def _fields(
    declared: Iterable[tuple[str, tuple[StatusField, ...]]], status: type[Struct]
) -> tuple[tuple[str, Any, Any], ...]:
    found: dict[str, tuple[str, StatusField]] = {}
    for name, fields in declared:
        for field in fields:
            if field.name in status.__struct_fields__:
                message = (
                    f"plugin {name} reads status field {field.name}, which is decoded anyway; take it off the list"
                )
                raise RegistryError(message)
            first, known = found.setdefault(field.name, (name, field))
            if known != field:
                message = f"plugins {first} and {name} read status field {field.name} in different forms; agree on one"
                raise RegistryError(message)
    return tuple((field.name, field.type, field.default) for _, field in found.values())


K = TypeVar("K", Node, Pod)


def _composed(
    kind: type[K],
    status: type[Struct],
    fields: tuple[tuple[str, Any, Any], ...],
    *,
    annotated: bool,
    marked: bool = False,
) -> type[K]:
    changed: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    if annotated:
        changed.append(("metadata", AnnotatedMeta))
    elif marked:
        changed.append(("metadata", MarkedMeta))
    if fields:
        wider = defstruct(status.__name__, fields, bases=(status,), frozen=True, gc=False, rename="camel")
        changed.append(("status", wider, wider()))
    if not changed:
        return kind
    made: type[Any] = defstruct(kind.__name__, changed, bases=(kind,), frozen=True, gc=False, rename="camel")
    return made


def annotations_of(shown: DeclaredObject) -> dict[str, str]:
    """Return the annotations of an object; empty if no plugin declares that it reads them."""
    meta = shown.metadata
    return meta.annotations if isinstance(meta, AnnotatedMeta) else {}


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """A node and the pods on it."""

    _columns: NodeColumns
    row: int
    node: Node

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """The node's annotations; empty unless a plugin declares that it reads them."""
        return annotations_of(self.node)

    @property
    def pods(self) -> Iterable[PodInfo]:
        """The pods that are bound or assumed to this node."""
        return self._columns.pods[self.row].values()

    def allocatable(self, resource: str) -> int:
        """Return the allocatable amount of a resource (CPU in millicores, else whole units); 0 if there is none."""
        column = self._columns.resources.find(resource)
        return 0 if column is None else self._columns.allocatable.item(column, self.row)

    def requested(self, resource: str) -> int:
        """Return the sum of the requests for a resource by the pods on this node."""
        return self._columns.requested_amount(resource, self.row)
