"""What a filter that searches devices reports to explanations: the claims that a pod needs on one node."""

from __future__ import annotations

from abc import ABC, abstractmethod

from msgspec import Struct

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.snapshot.node_columns import NodeColumns


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
        unavailable: Allocated claims that the pod cannot use on the node.
    """

    to_allocate: tuple[ResourceClaim, ...] = ()
    unavailable: tuple[UnavailableClaim, ...] = ()


class ClaimsFilter(ABC):
    """Filter that allocates devices; a mixin for a FilterPlugin."""

    @abstractmethod
    def claims_on(self, state: CycleState, nodes: NodeColumns, row: int) -> NodeClaims:
        """Return the claims of the pod as the search on one row reads them, after PreFilter."""
