"""A pod's claims, classified by what has to be done about them.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/volume_binding.go`` (``podHasPVCs``) and ``binder.go``
(``GetPodVolumeClaims``).
"""

from __future__ import annotations

from msgspec import Struct, field

from scheduler_core.errors import StorageError
from scheduler_core.model.storage import LOST, UNREADABLE, WAIT_FOR_FIRST_CONSUMER, PersistentVolumeClaim, StorageClass
from scheduler_core.snapshot.indexes.storage_index import StorageIndex
from scheduler_core.snapshot.pod_info import PodInfo


class DelayedClaim(Struct, frozen=True):
    """An unbound claim that waits for its first consumer, with its storage class."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass


class PodClaims(Struct):
    """A pod's claims, each list in the order of the pod's volumes.

    Attributes:
        bound: Fully bound claims.
        delayed: Unbound claims to bind when the pod is scheduled.
        immediate: Unbound claims that should have been bound independently of the pod.
    """

    bound: list[PersistentVolumeClaim] = field(default_factory=list)
    delayed: list[DelayedClaim] = field(default_factory=list)
    immediate: list[PersistentVolumeClaim] = field(default_factory=list)


def rejection_of_claims(pod: PodInfo, storage: StorageIndex) -> str:
    """Return why the pod's claims make it unschedulable on every node, "" if they do not."""
    for reference in pod.volumes.claims:
        claim = storage.claims.get(reference.key)
        if claim is None:
            if reference.is_ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{reference.name}"'
            return f'persistentvolumeclaim "{reference.name}" not found'
        if claim.status.phase == LOST:
            return (
                f'persistentvolumeclaim "{reference.name}" bound to non-existent persistentvolume '
                f'"{claim.spec.volume_name}"'
            )
        if claim.status.phase == UNREADABLE:
            return f'persistentvolumeclaim "{reference.name}" could not be decoded'
        volume = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None and volume.status.phase == UNREADABLE:
            return f'the persistentvolume of persistentvolumeclaim "{reference.name}" could not be decoded'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{reference.name}" is being deleted'
        if reference.is_ephemeral and not claim.metadata.is_controlled_by(pod.uid):
            return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
    return ""


def claims_of_pod(pod: PodInfo, storage: StorageIndex) -> PodClaims:
    """Classify the claims in their assumed or reported state.

    Raises:
        StorageError: A claim does not exist, or its class has no volume binding mode.
    """
    sorted_claims = PodClaims()
    for reference in pod.volumes.claims:
        claim = storage.claims.current(reference.key)
        if claim is None:
            raise StorageError(f'error getting PVC "{reference.key}": not found')
        if claim.is_fully_bound:
            sorted_claims.bound.append(claim)
            continue
        storage_class = storage.classes.get(claim.class_name) if claim.class_name else None
        if storage_class is not None and storage_class.volume_binding_mode is None:
            raise StorageError(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
        # A claim that names its volume is bound by the controller, regardless of its class.
        if (
            storage_class is not None
            and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
            and not claim.spec.volume_name
        ):
            sorted_claims.delayed.append(DelayedClaim(claim, storage_class))
        else:
            sorted_claims.immediate.append(claim)
    return sorted_claims


def are_bound(pod: PodInfo, storage: StorageIndex) -> bool:
    """Return whether every claim of the pod is fully bound."""
    for reference in pod.volumes.claims:
        claim = storage.claims.current(reference.key)
        if claim is None or not claim.is_fully_bound:
            return False
        if reference.is_ephemeral and not claim.metadata.is_controlled_by(pod.uid):
            return False
    return True
