"""Allocation results: what the scheduler writes into the status of claims for the devices that a search found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from scheduler_core.devices.behaviours import BehaviourRow
from scheduler_core.devices.best_fit import Size
from scheduler_core.devices.device_state import TakenDevice
from scheduler_core.devices.pools import PoolView
from scheduler_core.devices.requests import ClaimPlan, RequestTerms
from scheduler_core.devices.search import Solution
from scheduler_core.errors import AllocationError
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.devices import (
    FROM_CLAIM,
    FROM_CLASS,
    AllocatedConfiguration,
    AllocationResult,
    DeviceAllocation,
    DeviceRequestResult,
    OpaqueConfiguration,
)
from scheduler_core.model.quantity import canonical_text
from scheduler_core.model.selectors import IN, METADATA_NAME


def claim_configuration(plan: ClaimPlan, alternatives: Sequence[int]) -> tuple[AllocatedConfiguration, ...]:
    """Return the configuration of a claim for the chosen alternatives: of classes first, then of the claim.

    The configuration of a class is added once for all its requests. ``requests`` is empty if it names all.
    """
    chosen = [request.terms[index] for request, index in zip(plan.requests, alternatives, strict=True)]
    by_class: dict[str, list[str]] = {}
    sources: list[tuple[str, Sequence[str], OpaqueConfiguration | None]] = []
    for terms in chosen:
        device_class = terms.device_class
        if device_class is None:
            continue
        names = by_class.get(device_class.metadata.name)
        if names is None:
            # The list is completed below, when later requests of the class are met.
            names = by_class[device_class.metadata.name] = []
            sources.extend((FROM_CLASS, names, config.opaque) for config in device_class.spec.config)
        names.append(terms.result_name)
    sources.extend(
        (FROM_CLAIM, config.requests, config.opaque)
        for config in plan.claim.spec.devices.config
        if not config.requests or any(terms.is_named_in(config.requests) for terms in chosen)
    )
    return tuple(
        AllocatedConfiguration(source, () if _names_all(requests, chosen) else tuple(requests), opaque)
        for source, requests, opaque in sources
    )


def _names_all(requests: Sequence[str], chosen: Sequence[RequestTerms]) -> bool:
    return all(terms.is_named_in(requests) for terms in chosen)


def node_selector(devices: Sequence[TakenDevice], pools: Sequence[PoolView], node: str) -> NodeSelector | None:
    """Return the nodes from which all devices of a claim are reachable; None for all nodes.

    A device that is local to a node, or binds to it, restricts the claim to ``node``.

    Raises:
        AllocationError: A slice has a node selector with several terms.
    """
    fields: list[Requirement] = []
    expressions: list[Requirement] = []
    for taken in devices:
        view = pools[taken.position[0]]
        target = view.node_target(taken.position[1])
        if target.node_name is not None or view.records[taken.position[1]].binds_to_node:
            only = Requirement(METADATA_NAME, IN, (node,))
            return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
        if target.node_selector is None:
            continue
        terms = target.node_selector.node_selector_terms
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {taken.terms.claim.partition('/')[2]}: "
                f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def _add_new(requirements: list[Requirement], added: Sequence[Requirement]) -> None:
    for one in added:
        if not any(
            one.key == known.key and one.operator == known.operator and set(one.values) == set(known.values)
            for known in requirements
        ):
            requirements.append(one)


class NodeAllocation:
    """Devices found for all claims on a node.

    Nodes with equal devices, and pods with equal claims, share one solution, so only positions of devices are stored
    until :meth:`results`.
    """

    __slots__ = ("_plans", "_pools", "_rows", "node", "solution")

    def __init__(
        self,
        node: str,
        pools: Sequence[PoolView],
        rows: Sequence[BehaviourRow],
        plans: Sequence[ClaimPlan],
        solution: Solution,
    ) -> None:
        self.node = node
        self.solution = solution
        self._pools = pools
        self._rows = rows
        self._plans = plans

    @property
    def alternatives(self) -> tuple[tuple[int, ...], ...]:
        """Index of the chosen alternative by claim and request."""
        return self.solution.alternatives

    @property
    def size(self) -> Size:
        """Size of all devices, for best fit."""
        return self.solution.size

    def results(self, new_share_id: Callable[[], str]) -> list[AllocationResult]:
        """Return one result for each claim, in order, without timestamps.

        Raises:
            AllocationError: A slice has a node selector that cannot be written into a result.
        """
        own = {one.number: one for plan in self._plans for request in plan.requests for one in request.terms}
        results = []
        for plan, found, alternatives in zip(
            self._plans, self.solution.devices, self.solution.alternatives, strict=True
        ):
            devices = [replace(taken, terms=own[taken.terms.number]) for taken in found]
            allocated = DeviceAllocation(
                results=tuple(self._device(taken, new_share_id) for taken in devices),
                config=claim_configuration(plan, alternatives),
            )
            selector = node_selector(devices, self._pools, self.node)
            results.append(AllocationResult(devices=allocated, node_selector=selector))
        return results

    def _device(self, taken: TakenDevice, new_share_id: Callable[[], str]) -> DeviceRequestResult:
        pool, device = taken.position
        view = self._pools[pool]
        record = view.records[device]
        terms = taken.terms
        consumed = self._rows[pool].behaviours[device].assessments[terms.number].consumed if taken.is_share else None
        return DeviceRequestResult(
            request=terms.result_name,
            driver=view.key[0],
            pool=view.key[1],
            device=view.names.names[device],
            admin_access=True if terms.admin_access else None,
            tolerations=terms.tolerations,
            binding_conditions=record.binding_conditions,
            binding_failure_conditions=record.binding_failure_conditions,
            share_id=new_share_id() if taken.is_share else None,
            consumed_capacity={
                name: canonical_text(amount.nano, amount.form) for name, amount in (consumed or {}).items()
            },
            skip_node_operations=record.skip_node_operations,
        )
