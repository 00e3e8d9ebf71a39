"""Volumes and claims that are assumed for a pod until they are bound.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/binder.go`` (``AssumePodVolumes``), and
``k8s.io/component-helpers`` v0.37.1, ``storage/volume/pv_helpers.go`` (``GetBindVolumeToClaim``).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from scheduler_core.errors import StorageError
from scheduler_core.model.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimPointer,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler_core.plugins.volume_binding.filtering import Evaluation
from scheduler_core.plugins.volume_binding.matching import NONE
from scheduler_core.snapshot.indexes.storage_index import StorageIndex


class StaticBinding(Struct):
    """A claim with its existing volume, as it was last assumed or written."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


class NodeVolumes(Struct):
    """What has to be done for a pod's claims on one node.

    Attributes:
        bindings: Claims that get existing volumes.
        provisions: Claims that get new volumes, as last assumed or written.
    """

    bindings: list[StaticBinding] = field(default_factory=list)
    provisions: list[PersistentVolumeClaim] = field(default_factory=list)


def decided_volumes(evaluation: Evaluation, row: int) -> NodeVolumes:
    """Return what the filter decided for a row."""
    decided = NodeVolumes(provisions=list(evaluation.preselected))
    for claim, assigned in zip(evaluation.matched, evaluation.assigned, strict=True):
        number = int(assigned[row])
        if number == NONE:
            decided.provisions.append(claim)
        else:
            decided.bindings.append(StaticBinding(claim, evaluation.volumes[number].volume))
    return decided


def assume(storage: StorageIndex, decided: NodeVolumes, node_name: str) -> NodeVolumes:
    """Assume all volumes and claims in the state in which they will be written.

    Returns:
        The volumes and claims as assumed.

    Raises:
        StorageError: One of them does not exist or has changed; nothing remains assumed.
    """
    assumed = NodeVolumes()
    try:
        for binding in decided.bindings:
            volume = bound_volume(binding.volume, binding.claim)
            if volume is not binding.volume:
                storage.assume_volume(volume)
            assumed.bindings.append(StaticBinding(binding.claim, volume))
        for claim in decided.provisions:
            annotations = claim.metadata.annotations | {SELECTED_NODE: node_name}
            metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
            selected = msgspec.structs.replace(claim, metadata=metadata)
            storage.assume_claim(selected)
            assumed.provisions.append(selected)
    except StorageError:
        restore(storage, assumed)
        raise
    return assumed


def restore(storage: StorageIndex, held: NodeVolumes) -> None:
    """Restore objects that are still assumed; objects written since have another version and do not change."""
    for binding in held.bindings:
        storage.restore_volume(binding.volume)
    for claim in held.provisions:
        storage.restore_claim(claim)


def bound_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """Return the volume bound to the claim; the same object if it is bound already."""
    changed = volume
    metadata = claim.metadata
    pointer = ClaimPointer(metadata.namespace, metadata.name, metadata.uid)
    if volume.spec.claim_ref != pointer:
        changed = msgspec.structs.replace(changed, spec=msgspec.structs.replace(volume.spec, claim_ref=pointer))
    # The annotation allows the controller to undo the binding; it must not undo one that a user made.
    if not volume.is_reserved_for(claim) and BOUND_BY_CONTROLLER not in volume.metadata.annotations:
        annotations = volume.metadata.annotations | {BOUND_BY_CONTROLLER: "yes"}
        changed = msgspec.structs.replace(
            changed, metadata=msgspec.structs.replace(volume.metadata, annotations=annotations)
        )
    return changed
