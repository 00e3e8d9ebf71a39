"""Resource claims of pods that are moved: those of the pod end with it, and its replacement gets new ones.

That is so for claims that are created from templates and that only this pod uses. All their devices must belong to one
node: held room keeps pods with claims off the node of a replacement, and not off devices that other nodes can use, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod, PodResourceClaimStatus, PodStatus
from scheduler_core.snapshot.held_claims import has_claims
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, pools_of
from scheduler_core.snapshot.overlay import ColumnsOverlay

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
