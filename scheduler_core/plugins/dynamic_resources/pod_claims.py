"""The ResourceClaims of a pod, looked up by the names in its spec and status.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``foreachPodResourceClaim``), and
``k8s.io/dynamic-resource-allocation`` v0.37.1, ``resourceclaim/resourceclaim.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler_core.errors import DeviceError
from scheduler_core.framework.status import Status, error, unresolvable
from scheduler_core.model.devices import ClaimConsumer, DeviceRequest, ResourceClaim
from scheduler_core.model.pod import Pod, ResourceClaimReference
from scheduler_core.model.pod_group import GroupSource, PodGroup
from scheduler_core.snapshot.indexes.device_index import DeviceIndex

_PODGROUPS = "podgroups"


def claims_of_pod(pod: Pod, devices: DeviceIndex) -> list[ResourceClaim]:
    """Return the claims of a pod, in the order of ``spec.resourceClaims``.

    Raises:
        DeviceError: Claims are not known, or one does not exist yet, is being deleted, or belongs to another pod.
    """
    return [claim for _, claim in referenced_claims(pod, devices)]


def referenced_claims(pod: Pod, devices: DeviceIndex) -> list[tuple[ResourceClaimReference, ResourceClaim]]:
    """Return the claims of a pod, each with the entry of ``spec.resourceClaims`` that names it.

    Raises:
        DeviceError: As :func:`claims_of_pod`.
    """
    if pod.spec.resource_claims:
        require_lists(devices)
    return [(reference, _usable_claim(pod, name, must_own, devices)) for reference, name, must_own in _claim_names(pod)]


def require_lists(devices: DeviceIndex) -> None:
    """Check that all claims and slices are known: without them a device that is in use seems free.

    Raises:
        DeviceError: They are not.
    """
    if devices.withheld:
        raise DeviceError(f"resource claims cannot be allocated: {devices.withheld}")


def require_readable(claim_key: str, devices: DeviceIndex) -> None:
    """Check that a claim could be decoded.

    Raises:
        DeviceError: It could not.
    """
    if claim_key in devices.unreadable_claims:
        raise DeviceError(f'ResourceClaim "{claim_key}" could not be decoded')


def _claim_names(pod: Pod) -> Iterator[tuple[ResourceClaimReference, str, bool]]:
    """Yield the name of each claim, and whether the pod must own it because it was created from a template."""
    created = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    for reference in pod.spec.resource_claims:
        if reference.resource_claim_name is not None:
            yield reference, reference.resource_claim_name, False
        elif reference.resource_claim_template_name is None:
            raise DeviceError(
                f'pod "{pod.key}", spec.resourceClaim "{reference.name}": none of the supported fields are set'
            )
        elif reference.name not in created:
            raise DeviceError(f'pod "{pod.key}": ResourceClaim not created yet')
        else:
            name = created[reference.name]
            if name is not None:
                yield reference, name, True


def _usable_claim(pod: Pod, name: str, must_own: bool, devices: DeviceIndex) -> ResourceClaim:
    key = f"{pod.metadata.namespace}/{name}"
    claim = devices.claims.get(key)
    require_readable(key, devices)
    if claim is None:
        raise DeviceError(f'could not find ResourceClaim "{key}"')
    if claim.metadata.deletion_timestamp is not None:
        raise DeviceError(f'resourceclaim "{name}" is being deleted')
    if must_own and not claim.metadata.is_controlled_by(pod.metadata.uid):
        group = _group_name(pod) if devices.group_claims else ""
        if not group:
            raise DeviceError(f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)")
        if not _is_of_group(claim, group):
            owners = f"neither Pod nor PodGroup {group} is the owner"
            raise DeviceError(f"ResourceClaim {key} was not created for Pod {pod.key} ({owners})")
    return claim


def _group_name(pod: Pod) -> str:
    """Return the PodGroup that ``spec.schedulingGroup`` names; "" for none."""
    group = pod.spec.scheduling_group
    return "" if group is None else group.pod_group_name or ""


def _is_of_group(claim: ResourceClaim, group: str) -> bool:
    """Return whether a claim was created for the PodGroup of this name; the version of the API does not matter."""
    return any(
        owner.controller
        and (owner.kind, owner.name) == ("PodGroup", group)
        and owner.api_version.startswith(f"{GroupSource.NATIVE}/")
        for owner in claim.metadata.owner_references
    )


def is_reserved_for(claim: ResourceClaim, pod: Pod, *, accepts_group: bool = False) -> bool:
    """Return whether a claim's ``status.reservedFor`` names the pod.

    Args:
        accepts_group: Whether its PodGroup may be named instead; pods contain only the name of their group.
    """
    group = _group_name(pod) if accepts_group else ""
    of_group = (GroupSource.NATIVE.value, _PODGROUPS, group)
    return any(
        each.uid == pod.metadata.uid or (bool(group) and (each.api_group, each.resource, each.name) == of_group)
        for each in claim.status.reserved_for
    )


def consumer_of(
    pod: Pod, reference: ResourceClaimReference | None = None, group: PodGroup | None = None
) -> ClaimConsumer:
    """Return the object that a claim is reserved for: the pod, or its PodGroup if that has an equal claim.

    Args:
        reference: The entry of ``spec.resourceClaims`` that names the claim; None for extended resources.
    """
    if group is not None and reference in group.resource_claims:
        return ClaimConsumer(_PODGROUPS, group.key.name, group.uid, GroupSource.NATIVE.value)
    return ClaimConsumer("pods", pod.metadata.name, pod.metadata.uid)


def class_rejection(claim: ResourceClaim, devices: DeviceIndex) -> Status | None:
    """Return why the device classes of a claim's requests cannot be used."""
    for request in claim.spec.devices.requests:
        names = _class_names(request)
        if not names:
            return unresolvable(f"resource claim {claim.key}, request {request.name}: unknown request type")
        for label, class_name in names.items():
            if not class_name:
                return error(f"request {label}: unsupported request type")
            if class_name not in devices.classes:
                return unresolvable(f"request {label}: device class {class_name} does not exist")
    return None


def _class_names(request: DeviceRequest) -> Mapping[str, str]:
    """Return the class of a request, or of each of its alternatives, by name."""
    if request.exactly is not None:
        return {request.name: request.exactly.device_class_name}
    return {f"{request.name}/{each.name}": each.device_class_name for each in request.first_available}
