"""Resource claims whose devices an eviction frees: their allocation ends when all pods that hold them are gone.

A claim stays allocated as long as ``status.reservedFor`` names a consumer, so that its devices are in use until the
last holder is gone. A claim is left out if one of its holders may not be evicted or is not known, if it is reserved for
a PodGroup, which keeps it until the PodGroup is deleted, or if it is not reserved, because no eviction ends its
allocation then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from scheduler_core.devices.pools import PoolKey
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.indexes.device_index import pools_of
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_PODS = "pods"
_CLAIMS_PER_STEP = 20


@dataclass(frozen=True, slots=True)
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
    def device_count(self) -> int:
        """Number of its devices, shares of one device counted each, without those to which it has admin access."""
        allocation = self.claim.status.allocation
        return sum(not each.admin_access for each in (() if allocation is None else allocation.devices.results))

    @property
    def is_free(self) -> bool:
        """Whether all holders are removed from their nodes."""
        return all(info.row == NO_ROW for info in self.holders)


class HeldClaims:
    """The claims that end when pods are evicted, at one moment.

    Claims of one pod on devices of one node, which are most of them, are looked up when the pod is first of interest.

    Args:
        may_leave: Returns whether a pod may be evicted.
        kept: Keys of claims that must stay allocated, such as those of the preemptor.
    """

    def __init__(self, nodes: NodeColumns, may_leave: Callable[[PodInfo], bool], kept: Container[str] = ()) -> None:
        self._nodes = nodes
        self._may_leave = may_leave
        self._kept = kept
        self._of_pod: dict[str, list[HeldClaim]] = {}
        self._wide: dict[str, HeldClaim | None] = {}
        """Claims that several pods hold or that use devices of several nodes, by key; None for one that frees none."""
        self._of_pool: defaultdict[PoolKey, list[HeldClaim]] = defaultdict(list)
        claims, spread = nodes.devices.claims, nodes.devices.hardware.inventory.spread
        wide = claims.in_order(claims.shared | claims.in_pools(spread))
        placed = _placed_with_claims(nodes, len(wide)) if wide else {}
        for claim in wide:
            holders = _holders(nodes, claim, placed)
            is_local = len({info.row for info in holders}) == 1 and spread.isdisjoint(pools_of(claim))
            held = self._wide[claim.key] = self._held(claim, holders, is_local=is_local)
            if held is not None and not is_local:
                for pool in pools_of(claim):
                    self._of_pool[pool].append(held)
        self.is_local = not self._of_pool
        """Whether an eviction on one node frees devices of that node only."""
        self._frees_devices = self._is_any()

    def __bool__(self) -> bool:
        return self._frees_devices

    def of(self, info: PodInfo) -> list[HeldClaim]:
        """Return the claims that a pod holds, which is or was on a node."""
        found = self._of_pod.get(info.uid)
        if found is None:
            claims = self._nodes.devices.claims.of_consumer(info.uid) if has_claims(info.pod) else ()
            of_pod = (self._wide[each.key] if each.key in self._wide else self._alone(each, info) for each in claims)
            found = self._of_pod[info.uid] = [held for held in of_pod if held is not None]
        return found

    def _alone(self, claim: ResourceClaim, info: PodInfo) -> HeldClaim | None:
        return self._held(claim, _holders(self._nodes, claim, {info.uid: info}), is_local=True)

    def _held(self, claim: ResourceClaim, holders: tuple[PodInfo, ...], *, is_local: bool) -> HeldClaim | None:
        if not holders or claim.key in self._kept or not all(map(self._may_leave, holders)):
            return None
        return HeldClaim(claim, holders, is_local)

    def _is_any(self) -> bool:
        looked_at = 0
        try:
            for pods in self._nodes.pods if len(self._nodes.devices.claims) else ():
                looked_at += 1 + len(pods)
                if any(self.of(info) for info in pods.values() if has_claims(info.pod) and self._may_leave(info)):
                    return True
            return False
        finally:
            self._nodes.steps.pass_by(1 + looked_at // _CLAIMS_PER_STEP)

    def beyond(self, row: int, running: Iterable[PodInfo]) -> list[PodInfo]:
        """Return pods of other rows whose eviction may free devices for a row.

        Args:
            running: The pods of the row that may be evicted.
        """
        if self.is_local:
            return []
        claims = [held for info in running for held in self.of(info)]
        claims += (held for pool in _pools_of_row(self._nodes, row) for held in self._of_pool.get(pool, ()))
        found = {info.uid: info for held in claims for info in held.holders if info.row not in (row, NO_ROW)}
        return list(found.values())

    # -- devices in use, while a dry run removes and restores pods ----------------------------------------------------

    def removed(self, info: PodInfo) -> None:
        """Free the devices of claims whose last holder was removed from its row."""
        for held in self.of(info):
            if held.is_free:
                self._nodes.devices.hardware.allocated.remove_claim(held.claim.metadata.uid)

    def restored(self, info: PodInfo) -> None:
        """Undo :meth:`removed`: the claims of a pod have their devices again."""
        for held in self.of(info):
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
    return any(True for _ in ending_claims(nodes, row, is_ending))


def ending_claims(nodes: NodeColumns, row: int, is_ending: Callable[[PodInfo], bool]) -> Iterator[ResourceClaim]:
    """Yield the allocated claims with devices that a row reaches and all of whose holders are gone or end."""
    claims = nodes.devices.claims
    of_row = claims.in_order(claims.in_pools(_pools_of_row(nodes, row)))
    here = nodes.pods[row]
    elsewhere: dict[str, PodInfo] | None = None
    nodes.steps.pass_by(1 + len(of_row) // _CLAIMS_PER_STEP)
    for claim in of_row:
        consumers = claim.status.reserved_for
        if not consumers and claim.metadata.deletion_timestamp is None:
            continue
        if any(each.resource != _PODS for each in consumers) or nodes.devices.has_unwritten_consumers(claim):
            continue
        if elsewhere is None and any(each.uid not in here for each in consumers):
            elsewhere = _placed_with_claims(nodes)
        placed = here if elsewhere is None else elsewhere
        holders = (placed.get(each.uid) for each in consumers)
        if all(info is None or is_ending(info) for info in holders):
            yield claim


def _placed_with_claims(nodes: NodeColumns, claims: int = 0) -> dict[str, PodInfo]:
    """Return the pods on nodes that have claims, by UID; count the steps of this and of a look at some claims."""
    placed = {info.uid: info for pods in nodes.pods for info in pods.values() if has_claims(info.pod)}
    nodes.steps.pass_by(1 + (nodes.size + len(placed) + claims) // _CLAIMS_PER_STEP)
    return placed


def _holders(nodes: NodeColumns, claim: ResourceClaim, placed: Mapping[str, PodInfo]) -> tuple[PodInfo, ...]:
    """Return the holders of a claim; none if they are not all known."""
    consumers = claim.status.reserved_for
    if nodes.devices.has_unwritten_consumers(claim) or any(each.resource != _PODS for each in consumers):
        return ()
    found = [placed.get(each.uid) for each in consumers]
    known = tuple(info for info in found if info is not None)
    return known if len(known) == len(found) else ()


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
