"""Resource claims whose devices an eviction frees: their allocation ends when all pods that hold them are gone.

A claim stays allocated as long as ``status.reservedFor`` names a consumer, so that its devices are in use until the
last holder is gone. A claim is left out if one of its holders may not be evicted or is not known, if it is reserved for
a PodGroup, which keeps it until the PodGroup is deleted, or if it is not reserved, because no eviction ends its
allocation then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass

from scheduler_core.devices.pools import PoolKey
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import DeviceRequestResult, ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_PODS = "pods"
_CLAIMS_PER_STEP = 20


@dataclass(frozen=True, slots=True, eq=False)
class HeldClaim:
    """An allocated claim.

    Attributes:
        holders: All pods that it is reserved for.
        is_local: Whether its devices and its holders are on one node.
    """

    claim: ResourceClaim
    holders: tuple[PodInfo, ...]
    is_local: bool

    @property
    def is_free(self) -> bool:
        """Whether all holders are removed from their nodes."""
        return all(info.row == NO_ROW for info in self.holders)


class HeldClaims:
    """The claims that end when pods are evicted, at one moment.

    Args:
        may_leave: Returns whether a pod may be evicted.
        kept: Keys of claims that must stay allocated, such as those of the preemptor.
    """

    def __init__(self, nodes: NodeColumns, may_leave: Callable[[PodInfo], bool], kept: Container[str] = ()) -> None:
        self._nodes = nodes
        self._of_pod: defaultdict[str, list[HeldClaim]] = defaultdict(list)
        self._of_pool: defaultdict[PoolKey, list[HeldClaim]] = defaultdict(list)
        placed = _placed_with_claims(nodes)
        for claim in nodes.devices.claims:
            if claim.status.allocation is None or claim.key in kept:
                continue
            holders = _holders(nodes, claim, placed)
            if holders and all(map(may_leave, holders)):
                is_local = len({info.row for info in holders}) == 1
                is_local = is_local and all(map(nodes.devices.hardware.inventory.is_local, _pools(claim)))
                self._add(HeldClaim(claim, holders, is_local))
        self.is_local = not self._of_pool
        """Whether an eviction on one node frees devices of that node only."""

    def __bool__(self) -> bool:
        return bool(self._of_pod)

    def _add(self, held: HeldClaim) -> None:
        for info in held.holders:
            self._of_pod[info.uid].append(held)
        if not held.is_local:
            for pool in _pools(held.claim):
                self._of_pool[pool].append(held)

    def of(self, pod_uid: str) -> Iterable[HeldClaim]:
        """Return the claims that a pod holds."""
        return self._of_pod.get(pod_uid, ())

    def beyond(self, row: int, running: Iterable[PodInfo]) -> list[PodInfo]:
        """Return pods of other rows whose eviction may free devices for a row.

        Args:
            running: The pods of the row that may be evicted.
        """
        if self.is_local:
            return []
        claims = [held for info in running for held in self.of(info.uid)]
        claims += (held for pool in _pools_of_row(self._nodes, row) for held in self._of_pool.get(pool, ()))
        found = {info.uid: info for held in claims for info in held.holders if info.row not in (row, NO_ROW)}
        return list(found.values())

    # -- devices in use, while a dry run removes and restores pods ----------------------------------------------------

    def removed(self, info: PodInfo) -> None:
        """Free the devices of claims whose last holder was removed from its row."""
        for held in self.of(info.uid):
            if held.is_free:
                self._nodes.devices.hardware.allocated.remove_claim(held.claim.metadata.uid)

    def restored(self, info: PodInfo) -> None:
        """Undo :meth:`removed`: the claims of a pod have their devices again."""
        for held in self.of(info.uid):
            self._nodes.devices.hardware.allocated.put_claim(held.claim)


def has_claims(pod: Pod) -> bool:
    """Return whether a pod has resource claims, including one for extended resources."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def claim_keys(pods: Iterable[Pod]) -> set[str]:
    """Return the keys of the claims that pods name."""
    found = set()
    for pod in pods:
        created = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        names = {reference.resource_claim_name or created.get(reference.name) for reference in pod.spec.resource_claims}
        found |= {f"{pod.metadata.namespace}/{name}" for name in names if name}
    return found


def are_ending(nodes: NodeColumns, row: int, is_ending: Callable[[PodInfo], bool]) -> bool:
    """Return whether devices for a row will be free without a further eviction.

    These are devices of claims whose holders are gone or end, and whose allocation the API server has not removed yet.
    """
    pools = set(_pools_of_row(nodes, row))
    if not pools:
        return False
    ending = ending_claims(nodes, is_ending)
    return any(not pools.isdisjoint(_pools(claim)) for claim in ending)


def ending_claims(nodes: NodeColumns, is_ending: Callable[[PodInfo], bool]) -> Iterator[ResourceClaim]:
    """Yield the allocated claims all of whose holders are gone or end."""
    placed = _placed_with_claims(nodes)
    for claim in nodes.devices.claims:
        if claim.status.allocation is None:
            continue
        consumers = claim.status.reserved_for
        if not consumers and claim.metadata.deletion_timestamp is None:
            continue
        if any(each.resource != _PODS for each in consumers) or nodes.devices.has_unwritten_consumers(claim):
            continue
        holders = (placed.get(each.uid) for each in consumers)
        if all(info is None or is_ending(info) for info in holders):
            yield claim


def _placed_with_claims(nodes: NodeColumns) -> dict[str, PodInfo]:
    """Return the pods on nodes that have claims, by UID; count the steps of this and of a look at all claims."""
    placed = {info.uid: info for pods in nodes.pods for info in pods.values() if has_claims(info.pod)}
    nodes.steps.pass_by(1 + (nodes.size + len(placed) + len(nodes.devices.claims)) // _CLAIMS_PER_STEP)
    return placed


def _holders(nodes: NodeColumns, claim: ResourceClaim, placed: dict[str, PodInfo]) -> tuple[PodInfo, ...]:
    """Return the holders of a claim; none if they are not all known."""
    consumers = claim.status.reserved_for
    if nodes.devices.has_unwritten_consumers(claim) or any(each.resource != _PODS for each in consumers):
        return ()
    found = [placed.get(each.uid) for each in consumers]
    known = tuple(info for info in found if info is not None)
    return known if len(known) == len(found) else ()


def devices_of(claim: ResourceClaim) -> Iterator[DeviceRequestResult]:
    """Yield the devices that a claim uses, without those to which it has admin access."""
    allocation = claim.status.allocation
    for result in () if allocation is None else allocation.devices.results:
        if not result.admin_access:
            yield result


def _pools(claim: ResourceClaim) -> Iterator[PoolKey]:
    return ((result.driver, result.pool) for result in devices_of(claim))


def _pools_of_row(nodes: NodeColumns, row: int) -> Iterator[PoolKey]:
    node = nodes.nodes[row]
    if node is None:
        return
    inventory = nodes.devices.hardware.inventory
    try:
        views = inventory.pools(node.metadata.name, node.metadata.labels, node.status.declared_features)
    except AllocationError:
        return
    for view in views:
        yield view.key
