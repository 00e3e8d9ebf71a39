"""Admission of hand-written device objects, and the ResourceClaims that a cluster creates from templates.

Follows Kubernetes v1.37.1, ``pkg/controller/resourceclaim``: a pod has one claim per template that it names, which it
owns. The generated names are computed, so that the same files give the same result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from bayplan.simulation.storage_admission import DEFAULT_NAMESPACE, uid_of
from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.errors import ConfigError, Problem, SchedulerCoreError
from scheduler_core.model.devices import POD_CLAIM_NAME, ClaimMeta, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod, PodResourceClaimStatus, ResourceClaimReference
from scheduler_core.snapshot.indexes.device_index import DeviceObject

_SUFFIX = 5


def admitted_device(given: DeviceObject) -> DeviceObject:
    """Admit a claim, a class, a slice or a taint rule.

    Raises:
        ConfigError: A slice has an invalid quantity.
    """
    if isinstance(given, ResourceClaim):
        meta = given.metadata
        namespace = meta.namespace or DEFAULT_NAMESPACE
        uid = meta.uid or uid_of("ResourceClaim", namespace, meta.name)
        return replace(given, metadata=replace(meta, namespace=namespace, uid=uid))
    if isinstance(given, ResourceSlice):
        try:
            ClusterDevices.empty().inventory.put_slice(given)
        except SchedulerCoreError as error:
            raise ConfigError([Problem("spec", str(error))]) from error
    return given


def admitted_template(given: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """Admit a template."""
    namespace = given.metadata.namespace or DEFAULT_NAMESPACE
    return replace(given, metadata=replace(given.metadata, namespace=namespace))


def with_claims_of_templates(
    pods: Sequence[Pod], claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate]
) -> tuple[list[Pod], list[ResourceClaim]]:
    """Create the claims of pods from templates.

    Args:
        claims: Admitted claims; one that a pod owns already is used.
        templates: Admitted templates; a pod whose template does not exist waits for it.

    Returns:
        The pods, with ``status.resourceClaimStatuses``, and the new claims.
    """
    by_key = {(each.metadata.namespace, each.metadata.name): each for each in templates}
    owned = {
        (owner.uid, each.metadata.annotations.get(POD_CLAIM_NAME)): each.metadata.name
        for each in claims
        for owner in each.metadata.owner_references
        if owner.controller
    }
    created: list[ResourceClaim] = []
    changed = [pod if pod.is_terminal else _with_claims(pod, by_key, owned, created) for pod in pods]
    return changed, created


def _with_claims(
    pod: Pod,
    templates: Mapping[tuple[str, str], ResourceClaimTemplate],
    owned: Mapping[tuple[str, str | None], str],
    created: list[ResourceClaim],
) -> Pod:
    statuses = list(pod.status.resource_claim_statuses)
    known = {each.name for each in statuses}
    for reference in pod.spec.resource_claims:
        template_name = reference.resource_claim_template_name
        if template_name is None or reference.name in known:
            continue
        name = owned.get((pod.metadata.uid, reference.name))
        if name is None:
            template = templates.get((pod.metadata.namespace, template_name))
            if template is None:
                continue
            claim = _claim_of(pod, reference, template)
            created.append(claim)
            name = claim.metadata.name
        statuses.append(PodResourceClaimStatus(reference.name, name))
    if len(statuses) == len(known):
        return pod
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(statuses)))


def _claim_of(pod: Pod, reference: ResourceClaimReference, template: ResourceClaimTemplate) -> ResourceClaim:
    namespace, pod_name = pod.metadata.namespace, pod.metadata.name
    uid = uid_of("ResourceClaim", namespace, f"{pod.metadata.uid}/{reference.name}")
    metadata = ClaimMeta(
        name=f"{pod_name}-{reference.name}-{uid[:_SUFFIX]}",
        namespace=namespace,
        uid=uid,
        labels=template.spec.metadata.labels,
        annotations={**template.spec.metadata.annotations, POD_CLAIM_NAME: reference.name},
        owner_references=(OwnerReference("Pod", pod_name, pod.metadata.uid, "v1", controller=True),),
    )
    return ResourceClaim(metadata, template.spec.spec)
