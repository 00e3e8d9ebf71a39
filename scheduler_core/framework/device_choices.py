"""Interfaces of a plugin that allocates devices: what its filter reports, and the choices among allocations on a node.

A search over the members of a gang enumerates the choices, and passes the one to use to Reserve in the cycle state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence

from msgspec import Struct

from scheduler_core.errors import StepLimitError
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.model.devices import AllocationResult, ResourceClaim
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class UnavailableClaim(Struct, frozen=True):
    """An allocated claim that the pod cannot use on a node.

    Attributes:
        is_reachable: Whether its devices are reachable from the node.
        is_supported: Whether the node has the features that its devices need; if they are reachable too, only their
            driver is not ready.
    """

    claim: ResourceClaim
    is_reachable: bool
    is_supported: bool


class NodeClaims(Struct, frozen=True):
    """Claims of a pod as the search on one node reads them.

    Attributes:
        to_allocate: Claims without an allocation, in the order of the search.
    """

    to_allocate: tuple[ResourceClaim, ...] = ()
    unavailable: tuple[UnavailableClaim, ...] = ()


class ClaimsFilter(ABC):
    """Filter that allocates devices; a mixin for a FilterPlugin."""

    @abstractmethod
    def claims_on(self, state: CycleState, nodes: NodeColumns, row: int) -> NodeClaims:
        """Return the claims of the pod as the search on one row reads them, after PreFilter."""


class StepBudget:
    """Steps that a search may still take."""

    __slots__ = ("limit", "spent")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self) -> None:
        """Count one step. Raises StepLimitError: no step is left."""
        if self.spent >= self.limit:
            raise StepLimitError(self.limit)
        self.spent += 1


class DeviceChoice(Struct, frozen=True):
    """One allocation of all claims of a pod on a node.

    Attributes:
        key: Equal for choices that leave the same devices to other pods.
        allocations: The allocation of each claim that has none, in the order of the pod.
    """

    key: Hashable
    allocations: tuple[AllocationResult, ...]


CHOSEN: StateKey[DeviceChoice] = StateKey("GangDevices/chosen")
"""The choice that Reserve uses, written before PreFilter; without it, Reserve uses the first one."""


class FoundDevices(Struct, frozen=True):
    """Devices that an earlier search of the same state has found for a pod on a node.

    Attributes:
        claims: UID of each claim that had no allocation, in the order of the pod; "" for one that exists in memory.
        allocations: The allocation of each of them; empty if the node serves them all without devices.
    """

    claims: tuple[str, ...]
    allocations: tuple[AllocationResult, ...]


FOUND: StateKey[FoundDevices] = StateKey("MovedSearch/found")
"""Devices that Filter need not search and that Reserve uses, written before PreFilter for the only node to evaluate."""


class DeviceSearchKey(Struct, frozen=True):
    """What the search of Filter for the devices of a pod depends on besides nodes and devices in use.

    Attributes:
        key: Equal for pods whose claims request the same devices.
        held_on: Names of nodes with devices that are held for others than the pod.
    """

    key: bytes
    held_on: frozenset[str]


class DeviceChooser(ABC):
    """Enumerates allocations of devices."""

    @abstractmethod
    def gang_search_steps(self) -> int:
        """Return the largest number of steps of the search for one gang."""

    @abstractmethod
    def needs_devices(self, pod: PodInfo, nodes: NodeColumns) -> bool:
        """Return whether a pod has claims or needs one for its extended resources."""

    @abstractmethod
    def device_choices(self, state: CycleState, node_name: str, budget: StepBudget) -> Iterator[DeviceChoice]:
        """Yield the allocations on a feasible node, the one that Reserve uses by default first.

        Between two choices, the devices in use must be those of the filtering. Choices that differ only in devices
        that are equal for every pod are yielded once.

        Raises:
            StepLimitError: No step is left.
        """

    @abstractmethod
    def devices_without(
        self, pod: PodInfo, node_name: str, freed: Sequence[AllocationResult], held: Sequence[AllocationResult]
    ) -> tuple[AllocationResult, ...]:
        """Return devices that a pod can get on a node once others are free; none if there are none, or it has them.

        Args:
            freed: Allocations that end.
            held: Devices that it may not use.

        Raises:
            AttemptLimitError: No step is left.
        """

    @abstractmethod
    def search_key(self, state: CycleState) -> DeviceSearchKey | None:
        """Return what the search of Filter depends on besides nodes and devices in use; None for more than claims."""

    @abstractmethod
    def found_devices(self, state: CycleState) -> FoundDevices:
        """Return the devices that Reserve has taken for a pod."""
