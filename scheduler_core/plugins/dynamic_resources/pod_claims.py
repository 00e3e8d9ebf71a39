"""The ResourceClaims of a pod, looked up by the names in its spec and status.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``foreachPodResourceClaim``), and
``k8s.io/dynamic-resource-allocation`` v0.37.1, ``resourceclaim/resourceclaim.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler_core.errors import DeviceError
from scheduler_core.framework.status import Status, error, unresolvable
from scheduler_core.model.device_claims import DeviceRequest, ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.indexes.device_index import DeviceIndex


def claims_of_pod(pod: Pod, devices: DeviceIndex) -> list[ResourceClaim]:
    """Return the claims of a pod, in the order of ``spec.resourceClaims``.

    Raises:
        DeviceError: Claims are not known, or one does not exist yet, is being deleted, or belongs to another pod.
    """
    if devices.withheld and pod.spec.resource_claims:
        raise DeviceError(f"resource claims cannot be allocated: {devices.withheld}")
    return [_usable_claim(pod, name, must_own, devices) for name, must_own in _claim_names(pod)]


def _claim_names(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Yield the name of each claim, and whether the pod must own it because it was created from a template."""
    created = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    for reference in pod.spec.resource_claims:
        if reference.resource_claim_name is not None:
            yield reference.resource_claim_name, False
        elif reference.resource_claim_template_name is None:
            raise DeviceError(
                f'pod "{pod.key}", spec.resourceClaim "{reference.name}": none of the supported fields are set'
            )
        elif reference.name not in created:
            raise DeviceError(f'pod "{pod.key}": ResourceClaim not created yet')
        else:
            name = created[reference.name]
            if name is not None:
                yield name, True


def _usable_claim(pod: Pod, name: str, must_own: bool, devices: DeviceIndex) -> ResourceClaim:
    key = f"{pod.metadata.namespace}/{name}"
    claim = devices.claims.get(key)
    if claim is None:
        raise DeviceError(f'could not find ResourceClaim "{key}"')
    if claim.metadata.deletion_timestamp is not None:
        raise DeviceError(f'resourceclaim "{name}" is being deleted')
    if must_own and not claim.is_controlled_by(pod.metadata.uid):
        raise DeviceError(f"ResourceClaim {key} was not created for Pod {pod.key} (Pod is not owner)")
    return claim


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a claim's ``status.reservedFor`` names the pod."""
    return any(consumer.uid == pod.metadata.uid for consumer in claim.status.reserved_for)


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
