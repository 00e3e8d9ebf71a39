"""Writes a pod's volume bindings, and waits until they are complete.

The wait reads what the API server reports, never assumed objects, because another cycle may assume the same objects.

Follows kube-scheduler v1.37.1, ``plugins/volumebinding/binder.go`` (``BindPodVolumes``, ``checkBindings``).
"""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.errors import StorageError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_volumes import in_tree_plugin, translated_affinity
from scheduler_core.model.storage import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim, VolumeNodeAffinity
from scheduler_core.plugins.volume_binding.reserving import NodeVolumes, StaticBinding, restore
from scheduler_core.ports import Clock, StorageWriter
from scheduler_core.snapshot.indexes.storage_index import volume_affinity
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_POLL_SECONDS = 1.0


class VolumeBinder(Struct, frozen=True):
    """Binds the volumes of a pod.

    Attributes:
        nodes: The columns, with their storage index.
        writer: Writes volumes and claims.
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
