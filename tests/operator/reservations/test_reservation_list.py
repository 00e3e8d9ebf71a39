"""The list of NodeReservations, on the page and in the status."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.introspection.status_model import ReservationCounts
from bayplan.introspection.status_rendering import RENDERERS
from bayplan.kube.readiness import Readiness
from bayplan.page.resource_panels import ReservationsPanel
from bayplan.reservations.reservation_list import listed_reservation, reservation_counts

from tests.support.page_world import PageWorld
from tests.support.tables import table

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "main"}]}}


def reservation(name: str, phase: str | None = None, *, impossible: bool = False, **spec: Any) -> dict[str, Any]:
    form = {} if "template" in spec else {"resources": {"cpu": 1}}
    condition = {
        "type": "Impossible", "status": str(impossible), "reason": "a", "message": "b",
        "lastTransitionTime": "2026-11-23T12:00:00Z",
    }  # fmt: skip
    status = {"phase": phase, "reserved": 2 if phase == "Reserved" else 0, "conditions": [condition]}
    return {
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": "2026-11-23T12:00:00Z"},
        "spec": {"owner": {"labels": {"app": "a"}}, "count": 3, **form, **spec},
        **({} if phase is None else {"status": status}),
    }


ALL = (
    reservation("f", "Expired"),
    reservation("e", "Consumed"),
    reservation("d", "Reserved"),
    reservation("c", "Pending"),
    reservation("b", "Pending", impossible=True),
    reservation("a"),
)


@table(
    "spec, priority",
    ("default", {}, "0"),
    ("priority", {"priority": -5}, "-5"),
    ("class", {"priorityClassName": "high"}, "high"),
    ("class of the template", {"template": {"spec": {**TEMPLATE["spec"], "priorityClassName": "high"}}}, "high"),
    ("priority of the template", {"template": {"spec": {**TEMPLATE["spec"], "priority": 7}}}, "7"),
    ("instead of the template", {"template": {"spec": {**TEMPLATE["spec"], "priority": 7}}, "priority": 0}, "0"),
)
def test_priority(spec: dict[str, Any], priority: str) -> None:
    """The priority is that of the spec, else of the template."""
    assert listed_reservation(reservation("a", **spec)).priority == priority


async def test_the_panel_lists_those_without_room_first() -> None:
    """The document is bounded, and states that NodeReservations are not read."""
    world = PageWorld()
    off = await ReservationsPanel(world.sources).build(world.turns)
    assert (off.is_on, off.reservations, off.command) == (False, (), "bayplan reserve")
    sources = dataclasses.replace(world.sources, reservations=lambda: list(map(listed_reservation, ALL)))
    found = await ReservationsPanel(sources, shown=5).build(world.turns)
    assert [each.name for each in found.reservations] == ["b", "c", "a", "d", "e"]
    assert (found.is_on, found.total, found.omitted) == (True, 6, 1)


def test_the_status_counts_by_phase() -> None:
    """Impossible reservations are not pending; without any, the text has no line."""
    world, namespaces = PageWorld(), list[str]()

    def counts(namespace: str) -> ReservationCounts:
        namespaces.append(namespace)
        return reservation_counts(map(listed_reservation, ALL))

    sources = StatusSources(world.rig.scheduler, Readiness(()), reservations=counts)
    status = operator_status(sources, 0.0, namespace="ml")
    assert status.reservations == ReservationCounts(held=1, pods=2, pending=2, impossible=1, consumed=1, expired=1)
    assert namespaces == ["ml"]
    lines = RENDERERS["table"](status).splitlines()
    numbers = "1 held for 2 pods, 2 pending, 1 impossible, 1 consumed, 1 expired"
    assert f"Reservations  {numbers}; bayplan reserve lists them" in lines
    for none in (None, ReservationCounts()):
        empty = msgspec.structs.replace(status, reservations=none)
        assert "Reservations" not in RENDERERS["table"](empty)
