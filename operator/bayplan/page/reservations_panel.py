"""NodeReservations: the state of their room, its nodes, and the pods that have used it."""

from __future__ import annotations

from msgspec import Struct

from bayplan.page.page_sources import PageSources, Turns
from bayplan.reservations.reservation_list import ListedReservation

SHOWN_RESERVATIONS = 200
"""Maximum number of reservations in the document."""
_ORDER = ("Pending", "", "Reserved", "Consumed", "Expired")


class ShownReservations(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        is_on: Whether NodeReservations are read; not without their feature gate.
        reservations: Those without room first, then those with room, by namespace and name.
        omitted: Number of reservations that are not in the document.
    """

    is_on: bool
    total: int
    reservations: tuple[ListedReservation, ...]
    omitted: int
    command: str


class ReservationsPanel:
    """Builds the document."""

    interval = 2.0

    def __init__(self, sources: PageSources, shown: int = SHOWN_RESERVATIONS) -> None:
        self._sources = sources
        self._shown = shown

    async def build(self, turns: Turns) -> ShownReservations:
        del turns
        read, command = self._sources.reservations, self._sources.commands.reservations
        if read is None:
            return ShownReservations(is_on=False, total=0, reservations=(), omitted=0, command=command)
        found = sorted(read(), key=lambda each: (_ORDER.index(each.phase), each.namespace, each.name))
        first = tuple(found[: self._shown])
        return ShownReservations(
            is_on=True, total=len(found), reservations=first, omitted=len(found) - len(first), command=command
        )

    def without_ages(self, document: ShownReservations) -> ShownReservations:
        """Return the document, which has no ages."""
        return document
