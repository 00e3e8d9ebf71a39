"""Room that is held for pods that do not exist yet: it begins and ends between two scheduling cycles."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.fit.room_search import FitResult
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import HeldPod, HeldRoom, Holder, Terms
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.pod_info import NO_ROW


class RoomHolding:
    """Beginning and end of held room, for the controllers that search it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._reservations = scheduler.reservations
        self._suspension = scheduler.context.suspension
        self._nodes = scheduler.context.cache.columns

    def room(self, holder: Holder, request: FitRequest, found: FitResult, terms: Terms) -> HeldRoom:
        """Return room for the pods of a request, each with a slot on the node and with the devices of a dry run."""
        devices = found.devices or ((),) * len(found.nodes)
        slots = [
            HeldPod(self._nodes.compile_pod(pod), holder.pods.slot_class(pod), node_name, of_pod)
            for pod, node_name, of_pod in zip(request.pods, found.nodes, devices, strict=True)
        ]
        return HeldRoom(holder, slots, self._nodes, terms)

    async def hold(self, room: HeldRoom) -> bool:
        """Hold room, which ends the earlier room of its holder.

        Returns:
            Whether the room exists; if not, nothing is held.
        """
        began = list[bool]()
        await self._suspension.over()
        self._suspension.run_or_defer(lambda: began.append(self._reservations.hold(room)))
        return began[0]

    async def end(self, room: HeldRoom) -> None:
        """End room, unless it has ended or other room has replaced it."""
        await self._suspension.over()
        self._reservations.release(room)

    def node_states(self, names: Iterable[str]) -> dict[str, object]:
        """Return what decides whether pods may use nodes, by name; None for a node that does not exist."""
        found = dict[str, object]()
        for name in names:
            row = self._nodes.row_of(name)
            node = None if row == NO_ROW else self._nodes.nodes[row]
            found[name] = None if node is None else (node.spec.unschedulable, node.spec.taints, node.metadata.labels)
        return found
