"""Assumes a pod's volume bindings, writes them, and waits until they are complete.

The wait reads what the API server reports, never assumed objects, because another cycle may assume the same objects.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/binder.go`` (``AssumePodVolumes``, ``BindPodVolumes``,
``checkBindings``), and ``k8s.io/component-helpers`` v0.37.1, ``storage/volume/pv_helpers.go``
(``GetBindVolumeToClaim``).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from scheduler_core.errors import StorageError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_volumes import in_tree_plugin, translated_affinity
from scheduler_core.model.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimPointer,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeNodeAffinity,
)
from scheduler_core.plugins.volume_binding.filtering import NONE, Evaluation
from scheduler_core.ports import Clock, StorageWriter
from scheduler_core.snapshot.indexes.storage_index import StorageIndex, volume_affinity
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


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


_POLL_SECONDS = 1.0


class VolumeBinder(Struct, frozen=True):
    """Binds the volumes of a pod.

    Attributes:
        nodes: The columns, with their storage index.
        timeout_seconds: How long the wait after the writes may take.
    """

    nodes: NodeColumns
    clock: Clock
    writer: StorageWriter
    timeout_seconds: float

    async def bind(self, pod: PodInfo, node_name: str, held: NodeVolumes) -> None:
        """Write everything and wait until the pod's claims are fully bound.

        Args:
            held: What was assumed; its objects are replaced by the results of the writes.

        Raises:
            ClusterWriteError: A write failed; objects that were not written are no longer assumed.
            StorageError: A binding was lost, or the timeout expired.
        """
        await self._write(held)
        deadline = self.clock.now() + self.timeout_seconds
        while (left := deadline - self.clock.now()) > 0:
            await self.clock.sleep(min(_POLL_SECONDS, left))
            try:
                if self.clock.now() < deadline and self._is_bound(pod, node_name, held):
                    return
            except StorageError as problem:
                raise StorageError(f"binding volumes: {problem}") from problem
        raise StorageError("binding volumes: context deadline exceeded")

    async def _write(self, held: NodeVolumes) -> None:
        volumes = claims = 0
        try:
            for binding in held.bindings:
                binding.volume = await self.writer.bind_volume(binding.volume)
                volumes += 1
            for position, claim in enumerate(held.provisions):
                held.provisions[position] = await self.writer.select_node(claim)
                claims += 1
        finally:
            restore(self.nodes.storage, NodeVolumes(held.bindings[volumes:], held.provisions[claims:]))

    def _is_bound(self, pod: PodInfo, node_name: str, held: NodeVolumes) -> bool:
        """Return whether all claims are bound; False while that may still happen."""
        row = self.nodes.row_of(node_name)
        if row < 0:
            raise StorageError(f'failed to get node "{node_name}": node "{node_name}" not found')
        if pod.uid not in self.nodes.pods[row]:
            raise StorageError(f'pod does not exist any more: pod "{pod.pod.metadata.name}" not found')
        return all(self._is_static_bound(binding, row) for binding in held.bindings) and all(
            self._is_provisioned(claim, row) for claim in held.provisions
        )

    def _is_static_bound(self, binding: StaticBinding, row: int) -> bool:
        storage = self.nodes.storage
        name = binding.volume.metadata.name
        volume = storage.volumes.get(name)
        if volume is None:
            raise StorageError(f'failed to check binding: persistentvolumes "{name}" not found')
        claim = storage.claims.get(binding.claim.key)
        if claim is None:
            raise StorageError(f'failed to check binding: persistentvolumeclaims "{binding.claim.key}" not found')
        if _is_older(volume.metadata, binding.volume.metadata):
            return False
        self._check_reach(volume, row)
        pointer = volume.spec.claim_ref
        if pointer is None or not pointer.uid:
            raise StorageError(f'ClaimRef got reset for pv "{name}"')
        return claim.is_fully_bound

    def _is_provisioned(self, written: PersistentVolumeClaim, row: int) -> bool:
        storage = self.nodes.storage
        claim = storage.claims.get(written.key)
        if claim is None:
            raise StorageError(f'failed to check provisioning pvc: persistentvolumeclaims "{written.key}" not found')
        if _is_older(claim.metadata, written.metadata):
            return False
        name = claim.metadata.name
        if not claim.metadata.annotations:
            raise StorageError(f'selectedNode annotation reset for PVC "{name}"')
        if claim.metadata.annotations.get(SELECTED_NODE) != self.nodes.names[row]:
            # A provisioner resets the annotation to report that it cannot create the volume on this node.
            raise StorageError(f'provisioning failed for PVC "{name}"')
        if claim.spec.volume_name:
            volume = storage.volumes.get(claim.spec.volume_name)
            if volume is None:
                return False
            self._check_reach(volume, row)
        return claim.is_fully_bound

    def _check_reach(self, volume: PersistentVolume, row: int) -> None:
        node = self.nodes.nodes[row]
        if node is None:
            return
        matcher = volume_affinity(self._affinity_on(volume, node.metadata.name))
        if matcher is not None and not matcher.matches(node.metadata.labels, ""):
            name = volume.metadata.name
            raise StorageError(
                f'pv "{name}" node affinity doesn\'t match node "{node.metadata.name}": no matching NodeSelectorTerms'
            )

    def _affinity_on(self, volume: PersistentVolume, node_name: str) -> VolumeNodeAffinity | None:
        """Return a volume's affinity, translated if the node uses a CSI driver for its in-tree plugin."""
        plugin = in_tree_plugin(volume)
        csi_node = self.nodes.storage.csi_nodes.get(node_name)
        if plugin is None or not plugin.is_migrated or csi_node is None:
            return volume.spec.node_affinity
        if plugin.name not in csi_node.migrated_plugins:
            return volume.spec.node_affinity
        try:
            return translated_affinity(volume, plugin)
        except StorageError as problem:
            raise StorageError(f"failed to translate pv to csi: could not translate pv: {problem}") from problem


def _is_older(shown: ObjectMeta, written: ObjectMeta) -> bool:
    """Return whether the object that was read is older than the write, if the versions are comparable."""
    return _version(shown) < _version(written)


def _version(metadata: ObjectMeta) -> int:
    text = metadata.resource_version
    return int(text) if text.isdecimal() else 0
