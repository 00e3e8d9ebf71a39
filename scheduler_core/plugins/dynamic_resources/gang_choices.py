"""All allocations of a pod's claims on one node, for the search over the members of a gang."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import msgspec

from scheduler_core.config.plugin_args import DynamicResourcesArgs
from scheduler_core.errors import AllocationError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.device_choices import DeviceChoice, DeviceChooser, StepBudget
from scheduler_core.framework.handle import Handle
from scheduler_core.model.devices import AllocationResult, ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.plugins.dynamic_resources.extended_resources import is_in_memory, served_amounts
from scheduler_core.plugins.dynamic_resources.node_allocation import ATTEMPT, PodDevices
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_encode = msgspec.json.Encoder(order="deterministic").encode


class GangChoices(DeviceChooser):
    """The part of DynamicResources that a search over the members of a gang calls."""

    handle: Handle
    _args: DynamicResourcesArgs

    def gang_search_steps(self) -> int:
        """The arg gangSearchSteps."""
        return self._args.gang_search_steps

    def needs_devices(self, pod: PodInfo, nodes: NodeColumns) -> bool:
        """Return whether the pod has claims, or extended resources that a class serves."""
        return bool(pod.pod.spec.resource_claims or served_amounts(pod, nodes.devices))

    def device_choices(self, state: CycleState, node_name: str, budget: StepBudget) -> Iterator[DeviceChoice]:
        """Return the allocations on a feasible node."""
        node = self.handle.nodes.nodes[self.handle.nodes.row_of(node_name)]
        return iter(()) if node is None else choices_on(state.read(ATTEMPT), node, budget)


def choices_on(attempt: PodDevices, node: Node, budget: StepBudget) -> Iterator[DeviceChoice]:
    """Yield the allocations on a feasible node, each use of devices once.

    The choices end at an invalid selector or class that the search meets, as the search of Filter does.

    Raises:
        StepLimitError: No step is left.
    """
    indices = attempt.to_allocate()
    if not indices:
        yield DeviceChoice((), ())
        return
    seen: set[Hashable] = set()
    claims = [attempt.claims[index] for index in indices]
    found = attempt.all_allocations(node, budget.spend)
    while True:
        try:
            allocations = next(found, None)
        except AllocationError:
            return
        if allocations is None:
            return
        key = _key(attempt, claims, allocations)
        if key not in seen:
            seen.add(key)
            yield DeviceChoice(key, tuple(allocations))


def _key(attempt: PodDevices, claims: Sequence[ResourceClaim], allocations: Sequence[AllocationResult]) -> Hashable:
    """Return a key of the devices in use; a claim that other pods can share is part of it."""
    parts = []
    for claim, allocation in zip(claims, allocations, strict=True):
        own = is_in_memory(claim) or claim.metadata.is_controlled_by(attempt.pod.uid)
        devices = frozenset(
            (each.driver, each.pool, each.device, bool(each.admin_access), _encode(each.consumed_capacity))
            for each in allocation.devices.results
        )
        parts.append(("" if own else claim.metadata.uid, devices, _encode(allocation.node_selector)))
    return frozenset(parts)
