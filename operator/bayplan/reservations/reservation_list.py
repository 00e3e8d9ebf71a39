"""NodeReservations as `bayplan reserve` and the page list them, and their numbers for `bayplan status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bayplan.introspection.status_model import ReservationCounts
from bayplan.resources.conditions import find_condition
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.resource_model import format_time
from scheduler_core.errors import ConfigError


class ListedReservation(msgspec.Struct, frozen=True, rename="camel"):
    """A NodeReservation of a list.

    Attributes:
        phase: "" if no operator has written a status.
        reserved: Number of pods that room is held for.
        nodes: That number for each node.
        until: Time at which the reservation expires; None for never.
        reason: Reason of the condition Reserved, as ``message``.
        priority: Priority of the room, or the name of its PriorityClass; "" for a spec that is not valid.
        is_impossible: Whether the pods fit on no node of the cluster, whatever pods end.
    """

    namespace: str
    name: str
    phase: str
    count: int
    reserved: int
    consumed: int
    nodes: Mapping[str, int]
    until: str | None
    reason: str
    message: str
    priority: str = ""
    is_impossible: bool = False


def listed_reservation(body: Mapping[str, Any]) -> ListedReservation:
    """Return the row of a NodeReservation; one that this version cannot read has no phase, and its problems."""
    meta = body["metadata"]
    namespace, name = str(meta.get("namespace") or ""), str(meta.get("name"))
    try:
        read = NodeReservation.from_object(body)
    except ConfigError as error:
        return ListedReservation(namespace, name, "", 0, 0, 0, {}, None, "InvalidSpec", str(error))
    status, expires = read.status, read.expiration
    reserved, impossible = (find_condition(status.conditions, kind) for kind in ("Reserved", "Impossible"))
    return ListedReservation(
        namespace=namespace,
        name=name,
        phase=status.phase or "",
        count=read.spec.count,
        reserved=status.reserved,
        consumed=status.consumed,
        nodes={node.name: node.pods for node in status.nodes},
        until=None if expires is None else format_time(expires),
        reason="" if reserved is None else reserved.reason,
        message="" if reserved is None else reserved.message,
        priority=_priority(read),
        is_impossible=impossible is not None and impossible.status == "True",
    )


def _priority(reservation: NodeReservation) -> str:
    spec = reservation.spec
    if spec.priority is not None:
        return str(spec.priority)
    pod_spec = (spec.template or {}).get("spec")
    of_template = pod_spec if isinstance(pod_spec, Mapping) else {}
    return str(spec.priority_class_name or of_template.get("priorityClassName") or of_template.get("priority") or 0)


def reservation_counts(found: Iterable[ListedReservation]) -> ReservationCounts:
    """Return the numbers of reservations by phase; those that are impossible are not pending."""
    rows = list(found)
    pending = [each for each in rows if each.phase in ("Pending", "")]
    return ReservationCounts(
        held=sum(each.phase == "Reserved" for each in rows),
        pods=sum(each.reserved for each in rows),
        pending=sum(not each.is_impossible for each in pending),
        impossible=sum(each.is_impossible for each in pending),
        consumed=sum(each.phase == "Consumed" for each in rows),
        expired=sum(each.phase == "Expired" for each in rows),
    )
