"""Which running pods a plan may move, why the others are left alone, and the resource claims of those that move.

Claims end with a pod if they are created from templates and only this pod uses them; its replacement gets new ones. All
their devices must belong to one node: held room keeps pods with claims off the node of a replacement, and not off
devices that other nodes can use, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from scheduler_core.fit.requests import is_daemon
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.movable_pod import (
    LONGEST_OWNER,
    MOST_REQUESTS,
    has_local_volumes,
    is_decoded,
    safe_to_evict,
)
from scheduler_core.model.pod import Pod, PodResourceClaimStatus, PodStatus
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.rebalance.requests import Scope
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.held_claims import has_claims
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, pools_of
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_CRITICAL = 2_000_000_000
"""Priority of the class system-cluster-critical."""


def counts_for_node(info: PodInfo) -> bool:
    """Return whether a node with this pod is not empty; pods of DaemonSets and terminating pods do not count."""
    return not (info.is_leaving or is_daemon(info.pod))


@dataclass(frozen=True, slots=True)
class MovablePods:
    """Decides which pods a plan may move.

    Args:
        group_of: Returns the gang that a pod is a member of.
        left: Receives why pods are left alone, by ``namespace/name``.
    """

    nodes: NodeColumns
    profiles: ProfileTable
    group_of: Callable[[Pod], GroupKey | None]
    scope: Scope
    left: dict[str, str] = field(default_factory=dict)

    def why_not(self, info: PodInfo) -> str:
        """Return why a pod is left alone; "" if it may be moved."""
        why = self._out_of_scope(info) or self._immovable(info) or self._protected(info)
        if why:
            self.left[info.key] = why
        return why

    def may_leave(self, row: int) -> bool:
        """Return whether the scope has the node of a row."""
        node, of_scope = self.nodes.nodes[row], self.scope.nodes
        return of_scope is None or (node is not None and of_scope.matches(node.metadata.labels))

    def _out_of_scope(self, info: PodInfo) -> str:
        scope, pod = self.scope, info.pod
        if scope.namespaces and pod.metadata.namespace not in scope.namespaces:
            return "its namespace is not in the scope"
        name = pod.spec.scheduler_name
        if scope.profiles and name not in scope.profiles:
            return "its profile is not in the scope"
        if self.profiles.get(name) is None:
            return f'no profile serves its schedulerName "{name}"'
        if scope.pods is not None and not scope.pods.matches(pod.metadata.labels):
            return "its labels are not in the scope"
        return ""

    def _immovable(self, info: PodInfo) -> str:
        pod = info.pod
        if is_daemon(pod):
            return "it is a static pod or one of a DaemonSet"
        owner = pod.metadata.controller
        if owner is None:
            return "it has no controller that replaces it"
        if len(owner.uid) > LONGEST_OWNER:
            return f"the UID of its controller is longer than {LONGEST_OWNER} characters, so that none has it"
        if len(info.requests.fit) > MOST_REQUESTS:
            return f"it requests more than {MOST_REQUESTS} resources"
        if not pod.spec.node_name:
            return "it is not bound yet"
        if info.is_leaving:
            return "it terminates already"
        if info.priority >= _CRITICAL:
            return "it is critical for the system"
        if not is_decoded(pod):
            return "its annotations and volumes were not read"
        mark = safe_to_evict(pod)
        if mark == "false":
            return "its annotation safe-to-evict is false"
        if mark != "true" and has_local_volumes(pod):
            return "it has local volumes"
        if has_lasting_claims(pod, self.nodes.devices):
            return "it has resource claims that do not end with it, or whose devices other nodes can use"
        if self.group_of(pod) is not None:
            return "it is a member of a gang"
        return ""

    def _protected(self, info: PodInfo) -> str:
        budgets = self.nodes.disruption_budgets.protecting(info)
        if len(budgets) > 1:
            return "several PodDisruptionBudgets select it, and the API server then refuses evictions"
        for budget in budgets:
            if budget.disruptions_allowed < 1:
                return f"the PodDisruptionBudget {budget.name or 'of its namespace'} allows no disruption"
        return ""


# -- resource claims --------------------------------------------------------------------------------------------------


_NEW = "moved/"
"""First part of the name and the UID of a hypothetical claim; no claim has such a name, because of the slash."""


def has_lasting_claims(pod: Pod, devices: DeviceIndex) -> bool:
    """Return whether a pod has claims that do not end with it, or that are not known; False if it has no claims."""
    if not has_claims(pod):
        return False
    if devices.withheld or pod.status.extended_resource_claim_status is not None:
        return True
    created = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    if any(each.resource_claim_name is not None or each.name not in created for each in pod.spec.resource_claims):
        return True
    keys = {f"{pod.metadata.namespace}/{name}" for name in created.values() if name is not None}
    return not devices.unreadable_claims.isdisjoint(keys) or len(list(_ending(pod, devices))) != len(keys)


def _ending(pod: Pod, devices: DeviceIndex) -> Iterator[ResourceClaim]:
    """Yield the claims of a pod that end with it."""
    uid = pod.metadata.uid
    for each in pod.status.resource_claim_statuses:
        claim = devices.claims.get(f"{pod.metadata.namespace}/{each.resource_claim_name}")
        if claim is None or claim.status.allocation is None or devices.has_unwritten_consumers(claim):
            continue
        is_only_user = [consumer.uid for consumer in claim.status.reserved_for] == [uid]
        is_local = devices.hardware.inventory.spread.isdisjoint(pools_of(claim))
        if is_only_user and claim.metadata.is_controlled_by(uid) and is_local:
            yield claim


def replace_claims(overlay: ColumnsOverlay, devices: DeviceIndex, old: Pod, uid: str) -> PodStatus:
    """Free the devices of the claims of a pod that is removed, and create the claims of its replacement.

    Args:
        uid: UID of the replacement.

    Returns:
        The status of the replacement.
    """
    names = dict[str, str]()
    for claim in list(_ending(old, devices)):
        # Not removed, so that the claims keep their order.
        overlay.replace_device_object(claim, replace(claim, status=ResourceClaimStatus()))
        owners = tuple(replace(each, uid=uid) if each.controller else each for each in claim.metadata.owner_references)
        name = f"{_NEW}{claim.metadata.name}"
        meta = replace(claim.metadata, name=name, uid=f"{_NEW}{claim.metadata.uid}", owner_references=owners)
        overlay.replace_device_object(None, ResourceClaim(meta, claim.spec))
        names[claim.metadata.name] = name
    return PodStatus(resource_claim_statuses=_statuses(old.status.resource_claim_statuses, names))


def _statuses(old: Sequence[PodResourceClaimStatus], names: dict[str, str]) -> tuple[PodResourceClaimStatus, ...]:
    return tuple(
        each if each.resource_claim_name is None else replace(each, resource_claim_name=names[each.resource_claim_name])
        for each in old
    )
