"""Objects in records: their types by name, and what is left out of them.

Pods, nodes and other objects are recorded as the core has decoded them: only fields that scheduling reads. Parameters
that only drivers of devices interpret are replaced by their hash, so that changes of them remain visible. Room that
callers outside the core hold is input, like an event of a pod.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, cast, get_type_hints

import msgspec
from msgspec.structs import replace

from scheduler_core import errors
from scheduler_core.errors import Problem
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.gangs.held_room import SLOT_CLASSES, HeldPod, HeldRoom, HeldRooms, Holder, OwnPods, Terms
from scheduler_core.model import devices, pod_group, storage, workloads
from scheduler_core.model.devices import NO_DATA, AllocationResult, DeviceClass, ResourceClaim
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import ExtendedResourceClaimStatus, Pod, PodSpec
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import ExtenderVerdict, NodeVictims
from scheduler_core.queueing.gang_members import RecordedLoss
from scheduler_core.recording.record_entries import Content
from scheduler_core.recording.record_file import RecordError, missing_plugin
from scheduler_core.snapshot.node_columns import NodeColumns

_TYPES: tuple[type[Any], ...] = (
    storage.PersistentVolume, storage.PersistentVolumeClaim, storage.StorageClass, storage.CsiNode, storage.CsiDriver,
    storage.CsiStorageCapacity, storage.VolumeAttachment, ResourceClaim, DeviceClass, devices.ResourceSlice,
    devices.DeviceTaintRule, workloads.Namespace, workloads.Service, workloads.ReplicationController,
    workloads.ReplicaSet, workloads.StatefulSet, workloads.PodDisruptionBudget, pod_group.PodGroup,
    pod_group.CompositePodGroup, pod_group.GroupKey, pod_group.GroupSource, ExtenderVerdict,
    ExtendedResourceClaimStatus, RecordedLoss, str, int, float, bytes,
)  # fmt: skip
_PROBLEMS, _SCORES, _VICTIMS, _NONE, _HELD = "problems", "scores", "victims", "", "held"
_ERROR = "error:"
_ARGUMENTS = {
    errors.BoundElsewhereError: ("reason", "node_name"),
    errors.ClusterWriteError: ("reason",),
    errors.ExtenderError: ("url", "reason"),
}
_SAME_SPEC = "pod"
_HASHED = b"sha256:"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class ObjectTypes:
    """Names of types; room that is held now is named by the UID of its holder.

    Args:
        held, nodes: Required for records with room.
    """

    def __init__(self, decoded: DecodedTypes, held: HeldRooms | None = None, nodes: NodeColumns | None = None) -> None:
        self._held, self._nodes = cast("HeldRooms", held), cast("NodeColumns", nodes)
        kinds: dict[str, Any] = {each.__name__: each for each in _TYPES}
        kinds |= {"Pod": decoded.pod, "Node": decoded.node, _HELD: str, HeldRoomContent.__name__: HeldRoomContent}
        kinds |= {_PROBLEMS: tuple[Problem, ...], _SCORES: dict[str, int], _VICTIMS: dict[str, NodeVictims]}
        kinds |= {kind.path: kind.struct for kind in decoded.kinds}
        self._paths = {kind.struct: kind.path for kind in decoded.kinds}
        # Types of which nothing is redacted, and which are recorded most often.
        metas = [(each, get_type_hints(each)["metadata"]) for each in (decoded.pod, decoded.node)]
        self._plain = frozenset([each for each, meta in metas if not issubclass(meta, AnnotatedMeta)])
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in kinds.items()}

    def content(self, value: object) -> Content:
        """Return what is encoded for a value; it may be encoded only before the value changes."""
        kind = type(value)
        name = self._paths.get(kind) or kind.__name__
        if value is None:
            name = _NONE
        elif kind in self._plain:
            pass
        elif hasattr(value, "metadata"):
            value = redacted(value)
        elif isinstance(value, Mapping):
            name = _VICTIMS if any(isinstance(each, NodeVictims) for each in value.values()) else _SCORES
            value = dict(value)
        elif kind in {list, tuple}:
            name = _PROBLEMS
        elif isinstance(value, BaseException):
            name, value = _error_content(value)
        elif isinstance(value, HeldRoom):
            uid = value.holder.uid
            is_held = self._held.held_now(uid) is value
            name, value = (_HELD, uid) if is_held else (HeldRoomContent.__name__, content_of(value, self))
        return name, cast("msgspec.Raw", value)

    def change(self, old: Any, new: Any) -> Content:
        """Return what is encoded for a new version; the spec of a pod is left out if only its node changed."""
        if isinstance(new, Pod):
            node_name = new.spec.node_name
            if replace(old.spec, node_name=node_name) == new.spec:
                content = self.content(replace(new, spec=PodSpec(node_name=node_name)))
                return _SAME_SPEC, content[1]
        return self.content(new)

    def changed(self, content: Content, find: Callable[[Any], Any]) -> list[Any]:
        """Return the old and the new version of an object. Raises RecordError: it cannot be decoded.

        Args:
            find: Returns the old version, by kind, namespace and name of the new one.
        """
        is_same = content[0] == _SAME_SPEC
        new = self.value(("Pod", content[1]) if is_same else content)
        old = find(new)
        return [old, replace(new, spec=replace(old.spec, node_name=new.spec.node_name)) if is_same else new]

    def value(self, content: Content) -> Any:
        """Return the decoded object. Raises RecordError: the type is unknown, or the object is invalid."""
        name, raw = content
        if name == _NONE:
            return None
        if name.startswith(_ERROR):
            return _error_of(name.removeprefix(_ERROR), raw)
        decoder = self._decoders.get(name)
        if decoder is None:
            raise missing_plugin(f'the record contains an object of type "{name}", which no installed plugin declares')
        try:
            found = decoder.decode(raw)
        except msgspec.DecodeError as error:
            raise RecordError(f"the record contains an invalid {name}: {error}") from error
        if name == _HELD:
            return self._held.held_now(found)
        return room_of(found, self, self._nodes) if isinstance(found, HeldRoomContent) else found


def _error_content(error: BaseException) -> tuple[str, list[str]]:
    """Return the name of the nearest type that :func:`_error_of` finds, and the arguments of an equal one."""
    known = (errors.__name__, builtins.__name__, asyncio.CancelledError.__module__)
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ in known)
    fields = next((names for kind, names in _ARGUMENTS.items() if isinstance(error, kind)), None)
    args = error.args if fields is None else [getattr(error, field) for field in fields]
    return _ERROR + name, [str(each) for each in args]


def _error_of(name: str, raw: msgspec.Raw) -> BaseException:
    """Return an equal exception; one of an unknown type becomes a RuntimeError."""
    arguments = msgspec.json.decode(raw, type=list[str])
    if name == asyncio.CancelledError.__name__:
        return asyncio.CancelledError(*arguments)
    kind: Any = getattr(errors, name, None) or getattr(builtins, name, None)
    is_known = isinstance(kind, type) and issubclass(kind, Exception)
    return kind(*arguments) if is_known else RuntimeError(*arguments)


def redacted(shown: Any) -> Any:
    """Return an object with hashes instead of what is not for a record.

    These are the parameters and data of devices' drivers, and the annotation in which kubectl stores the whole object.
    """
    meta = getattr(shown, "metadata", None)
    if isinstance(meta, AnnotatedMeta) and _LAST_APPLIED in meta.annotations:
        annotations = meta.annotations | {_LAST_APPLIED: _hash_of(meta.annotations[_LAST_APPLIED].encode())}
        shown = replace(shown, metadata=replace(meta, annotations=annotations))
    if isinstance(shown, ResourceClaim):
        return _redacted_claim(shown)
    if isinstance(shown, DeviceClass) and shown.spec.config:
        return replace(shown, spec=replace(shown.spec, config=without_parameters(shown.spec.config)))
    return shown


def _redacted_claim(claim: ResourceClaim) -> ResourceClaim:
    devices, status = claim.spec.devices, claim.status
    if devices.config:
        config = without_parameters(devices.config)
        claim = replace(claim, spec=replace(claim.spec, devices=replace(devices, config=config)))
    allocation = status.allocation
    if allocation is not None and allocation.devices.config:
        status = replace(status, allocation=_without_parameters(allocation))
    if status.devices:
        status = replace(status, devices=tuple(map(_without_data, status.devices)))
    return claim if status is claim.status else replace(claim, status=status)


def without_parameters(config: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        each
        if each.opaque is None
        else replace(each, opaque=devices.OpaqueConfiguration(each.opaque.driver, _hashed(each.opaque.parameters)))
        for each in config
    )


def _without_data(device: devices.AllocatedDeviceStatus) -> devices.AllocatedDeviceStatus:
    data = {name: getattr(device, name) for name in ("data", "network_data")}
    return replace(device, **{name: _hashed(value) for name, value in data.items() if value is not NO_DATA})


def _hashed(text: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(b'"' + _hash_of(bytes(text).strip(b'"')).encode() + b'"')


def _hash_of(text: bytes) -> str:
    """Return a hash; that of a hash is the same hash."""
    return text.decode() if text.startswith(_HASHED) else _HASHED.decode() + hashlib.sha256(text).hexdigest()


# -- held room --------------------------------------------------------------------------------------------------------


class HeldPodContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A slot."""

    pod: Content
    priority: int
    slot_class: str
    node_name: str
    devices: tuple[AllocationResult, ...]


class HeldRoomContent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Room; fields as those of its parts.

    Attributes:
        slot_class: Position of the function in ``SLOT_CLASSES``.
        settles_itself: Whether the room ends by itself when all pods are bound.
    """

    holder: tuple[str, str, str, str]
    namespace: str
    labels: tuple[tuple[str, str], ...]
    owner_uid: str
    group: GroupKey | None
    owner: tuple[str, str] | None
    slot_class: int
    are_new: bool
    pods: tuple[HeldPodContent, ...]
    priority: int
    in_the_way: tuple[str, ...]
    until: float | None
    prefers_slots: bool
    is_admitted: bool
    follows_group: bool
    settles_itself: bool
    settled: tuple[str, ...]


_OF_OWN_PODS = ("namespace", "labels", "owner_uid", "group", "owner", "are_new")
_OF_TERMS = ("prefers_slots", "is_admitted", "follows_group")
"""Fields of :class:`OwnPods` and :class:`Terms` that a record has as they are."""


def content_of(room: HeldRoom, objects: ObjectTypes) -> HeldRoomContent:
    """Return what is recorded of room that is about to be held."""
    holder, own, terms, reservation = room.holder, room.holder.pods, room.terms, room.reservation
    return HeldRoomContent(
        holder=(holder.kind, holder.namespace, holder.name, holder.uid),
        **{name: getattr(own, name) for name in _OF_OWN_PODS},
        slot_class=SLOT_CLASSES.index(own.slot_class),
        pods=tuple(
            HeldPodContent(
                objects.content(slot.info.pod),
                slot.info.priority,
                str(slot.pod_class),
                slot.node_name,
                tuple(map(_without_parameters, slot.devices)),
            )
            for slot in reservation.plan.slots
        ),
        priority=reservation.priority,
        in_the_way=tuple(sorted(terms.in_the_way)),
        until=room.until,
        **{name: getattr(terms, name) for name in _OF_TERMS},
        settles_itself=terms.on_end is not None,
        settled=tuple(sorted(room.settled)),
    )


def room_of(content: HeldRoomContent, objects: ObjectTypes, nodes: NodeColumns) -> HeldRoom:
    """Return the room of a record. Raises RecordError: a pod cannot be decoded."""
    fields = {name: getattr(content, name) for name in _OF_OWN_PODS}
    own = OwnPods(**fields, slot_class=SLOT_CLASSES[content.slot_class])
    pods = []
    for each in content.pods:
        info = nodes.compile_pod(objects.value(each.pod))
        info.priority = each.priority
        pods.append(HeldPod(info, each.slot_class, each.node_name, each.devices))
    # The holder, which waits for the end, is not replayed.
    on_end = (lambda _: None) if content.settles_itself else None
    fields = {name: getattr(content, name) for name in _OF_TERMS}
    terms = Terms(frozenset(content.in_the_way), content.until, on_end=on_end, **fields)
    room = HeldRoom(Holder(*content.holder, own), pods, nodes, terms)
    room.reservation.priority = content.priority
    room.settled.update(content.settled)
    return room


def _without_parameters(allocation: AllocationResult) -> AllocationResult:
    config = without_parameters(allocation.devices.config)
    return replace(allocation, devices=replace(allocation.devices, config=config))
