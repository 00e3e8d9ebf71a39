"""The searches of one group cycle: in the gang's domains, on the nodes reserved for it, and with chosen devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler_core.gangs.reservation_cycle import reserved_world
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.placement.devices import DeviceWorld
from scheduler_core.placement.engine import Observer, Policy, Steps, as_given, place
from scheduler_core.placement.requests import Placement, PlacementRequest, Rejection
from scheduler_core.placement.subsets import gang_subsets
from scheduler_core.placement.worlds import CycleWorld, SearchWorld


@dataclass(frozen=True, slots=True)
class GangPlacing:
    """Places gangs and trees; group cycles and their dry runs call it.

    Attributes:
        searches_devices: Whether nodes and devices are searched together if a gang is infeasible otherwise.
    """

    world: CycleWorld
    search: SearchWorld
    reservations: GangReservations
    searches_devices: bool

    def place(
        self, request: PlacementRequest, policy: Policy, observer: Observer
    ) -> Steps[tuple[Placement | None, Rejection]]:
        """Search the nodes of a request; see :func:`scheduler_core.placement.engine.place`."""
        found, rejection = yield from place(request, self.world, policy, observer)
        if found is not None or rejection.limit is not None or request.gang.is_tree:
            return found, rejection
        reserved = reserved_world(self.world, self.reservations, request)
        if reserved is not None:
            world, planned = reserved
            found, other = yield from place(request, world, replace(planned, accept=policy.accept))
            rejection.limit = other.limit
            for tried in other.tries:
                self.world.ended(tried)
            if found is not None:
                found.is_reserved = True
        if found is not None or rejection.limit is not None or rejection.is_error or not rejection.tries:
            return found, rejection
        devices = DeviceWorld.of(self.world, self.search, request) if self.searches_devices else None
        if devices is not None:
            with_devices = replace(policy, subsets=gang_subsets, orders=as_given)
            found, other = yield from place(request, devices, with_devices)
            rejection.limit, rejection.device_search = other.limit, devices.message
            rejection.tries += (tried for tried in other.tries if tried.failed or tried.undone)
        return found, rejection
