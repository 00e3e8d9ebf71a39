"""Held room as a record has it: what callers outside the core hold is input, like an event of a pod."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from scheduler_core.gangs.held_room import SLOT_CLASSES, HeldPod, HeldRoom, Holder, OwnPods, Terms
from scheduler_core.model.devices import AllocationResult
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.recording.object_types import ObjectTypes, without_parameters
from scheduler_core.recording.record_entries import Content
from scheduler_core.snapshot.node_columns import NodeColumns


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


def content_of(room: HeldRoom, objects: ObjectTypes) -> HeldRoomContent:
    """Return what is recorded of room that is about to be held."""
    holder, own, terms, reservation = room.holder, room.holder.pods, room.terms, room.reservation
    return HeldRoomContent(
        holder=(holder.kind, holder.namespace, holder.name, holder.uid),
        namespace=own.namespace,
        labels=own.labels,
        owner_uid=own.owner_uid,
        group=own.group,
        owner=own.owner,
        slot_class=SLOT_CLASSES.index(own.slot_class),
        are_new=own.are_new,
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
        prefers_slots=terms.prefers_slots,
        is_admitted=terms.is_admitted,
        follows_group=terms.follows_group,
        settles_itself=terms.on_end is not None,
        settled=tuple(sorted(room.settled)),
    )


def room_of(content: HeldRoomContent, objects: ObjectTypes, nodes: NodeColumns) -> HeldRoom:
    """Return the room of a record. Raises RecordError: a pod cannot be decoded."""
    own = OwnPods(
        content.namespace,
        content.labels,
        content.owner_uid,
        content.group,
        owner=content.owner,
        slot_class=SLOT_CLASSES[content.slot_class],
        are_new=content.are_new,
    )
    pods = []
    for each in content.pods:
        info = nodes.compile_pod(objects.value(each.pod))
        info.priority = each.priority
        pods.append(HeldPod(info, each.slot_class, each.node_name, each.devices))
    terms = Terms(
        frozenset(content.in_the_way),
        content.until,
        content.prefers_slots,
        content.is_admitted,
        content.follows_group,
        _ignore if content.settles_itself else None,
    )
    room = HeldRoom(Holder(*content.holder, own), pods, nodes, terms)
    room.reservation.priority = content.priority
    room.settled.update(content.settled)
    return room


def _ignore(reason: Any) -> None:
    """Ignore the end of the room: its holder is not replayed."""


def _without_parameters(allocation: AllocationResult) -> AllocationResult:
    config = without_parameters(allocation.devices.config)
    return replace(allocation, devices=replace(allocation.devices, config=config))
