"""Volumes in use on nodes, by running pods and by attachments.

Three tables are updated as pods and storage objects change, so that no cycle visits the pods of a node:

* rows with a pod that uses a claim;
* rows with an inline disk, and how it is mounted;
* per CSI driver, the number of distinct volumes on each row, of pods and attachments together.

What is added and removed is applied when a table is read, since dry runs of preemption remove and restore pods with
thousands of volumes for pods without any.

An unbound claim counts as a volume of its class's provisioner. Follows kube-scheduler v1.37.1,
``plugins/nodevolumelimits/csi.go``. There, a running pod with an inline volume that cannot be translated, or with an
ephemeral claim of another pod, fails the attempts of all pods with volumes; here the former is not counted and the
latter is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler_core.errors import StorageError
from scheduler_core.model.pod_volumes import (
    NO_VOLUMES,
    CsiVolume,
    DiskIdentity,
    PodVolumes,
    in_tree_plugin,
    in_tree_plugin_named,
    translated_handle,
)
from scheduler_core.step_counter import StepCounter

if TYPE_CHECKING:
    from scheduler_core.snapshot.indexes.storage_index import StorageIndex
    from scheduler_core.snapshot.pod_info import PodInfo

_Rows = dict[int, int]
"""Counts by row; rows with 0 are left out."""

_Object = tuple[str, str]
"""A kind in one word, and a name."""

_VOLUMES_PER_STEP = 8
_UNPROVISIONED = "\0unprovisioned/"


class _Holders:
    """Pods and attachments of a volume by row."""

    __slots__ = ("attachments", "pods")

    def __init__(self) -> None:
        self.pods: _Rows = {}
        self.attachments: _Rows = {}


class _DiskMounts:
    """Mounts of an inline disk by row."""

    __slots__ = ("read_only", "writing")

    def __init__(self) -> None:
        self.read_only: _Rows = {}
        self.writing: _Rows = {}


class _Dependents:
    """Keys of claims or attachments by the objects on which they depend."""

    __slots__ = ("_keys", "_objects")

    def __init__(self) -> None:
        self._keys: dict[_Object, dict[str, None]] = {}
        self._objects: dict[str, tuple[_Object, ...]] = {}

    def keys(self, on: _Object) -> list[str]:
        return list(self._keys.get(on, ()))

    def assign(self, key: str, objects: tuple[_Object, ...]) -> None:
        """Set what a key depends on."""
        if key in self._objects:
            for each in self._objects.pop(key):
                keys = self._keys[each]
                del keys[key]
                if not keys:
                    del self._keys[each]
        if objects:
            self._objects[key] = objects
        for each in objects:
            self._keys.setdefault(each, {})[key] = None


class VolumeUse:
    """The tables of volumes in use."""

    def __init__(self, storage: StorageIndex, row_of: Callable[[str], int], steps: StepCounter) -> None:
        self._storage = storage
        self._row_of = row_of
        self._steps = steps
        self._clear()

    def _clear(self) -> None:
        self._changes: dict[tuple[int, int], tuple[int, PodVolumes, int]] = {}
        self._mounted: dict[str, _Rows] = {}
        self._disks: dict[DiskIdentity, _DiskMounts] = {}
        self._claims: dict[str, _Rows] = {}
        self._volume_of: dict[str, CsiVolume] = {}
        self._claims_of = _Dependents()
        self._holders: dict[CsiVolume, _Holders] = {}
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._places: dict[str, int] = {}
        self._attached: dict[str, tuple[CsiVolume, int]] = {}
        self._attachments_of = _Dependents()

    # -- reading ------------------------------------------------------------------------------------------------

    def is_claim_mounted(self, key: str) -> bool:
        self._apply()
        return key in self._mounted

    def disk_rows(self, identity: DiskIdentity, *, read_only: bool) -> Iterable[int]:
        """Return the rows with mounts of an inline disk that exclude another mount, read-only or not."""
        self._apply()
        mounts = self._disks.get(identity)
        if mounts is None:
            return ()
        return mounts.writing if read_only else mounts.writing | mounts.read_only

    def counts(self, driver: str, size: int) -> NDArray[np.int64]:
        """Return the number of distinct volumes of a driver, int64[size]; the caller may modify the array."""
        self._apply()
        counts = self._counts.get(driver)
        found = np.zeros(size, dtype=np.int64)
        if counts is not None:
            known = min(size, len(counts))
            found[:known] = counts[:known]
        return found

    def rows_with(self, volume: CsiVolume) -> list[int]:
        self._apply()
        holders = self._holders.get(volume)
        return [] if holders is None else list(holders.pods)

    def volume_of_claim(self, key: str) -> CsiVolume | None:
        """Return the volume of a claim as its driver identifies it; None if it has no CSI driver."""
        return self._resolve(key)[0]

    def is_migrated(self, key: str) -> bool:
        """Return whether a claim has, or will have, an in-tree volume that a CSI driver serves."""
        claim = self._storage.claims.get(key)
        if claim is None:
            return False
        volume = self._storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            return volume.spec.csi is None
        storage_class = self._storage.classes.get(claim.class_name) if claim.class_name else None
        return storage_class is not None and in_tree_plugin_named(storage_class.provisioner) is not None

    # -- pods ---------------------------------------------------------------------------------------------------

    def add_pod(self, row: int, volumes: PodVolumes) -> None:
        self._change(row, volumes, 1)

    def remove_pod(self, row: int, volumes: PodVolumes) -> None:
        self._change(row, volumes, -1)

    def _change(self, row: int, volumes: PodVolumes, sign: int) -> None:
        place = row, id(volumes)
        _, _, before = self._changes.pop(place, (0, volumes, 0))
        if before + sign:
            self._changes[place] = row, volumes, before + sign

    def _apply(self) -> None:
        while self._changes:
            row, volumes, sign = next(iter(self._changes.values()))
            count = len(volumes.claims) + len(volumes.inline) + sum(len(disk.identities) for disk in volumes.disks)
            self._steps.upkeep(1 + count // _VOLUMES_PER_STEP)
            del self._changes[row, id(volumes)]
            try:
                self._count_pod(row, volumes, sign)
            except Exception:
                self._storage.rebuild()
                raise

    def rebuild(self, pods: Iterable[Mapping[str, PodInfo]]) -> None:
        """Compute the tables again from the pods of each row and the attachments."""
        self._clear()
        for row, of_row in enumerate(pods):
            for info in of_row.values():
                if info.volumes is not NO_VOLUMES:
                    self.add_pod(row, info.volumes)
        for attachment in self._storage.attachments:
            self.attachment_changed(attachment.metadata.name)

    def _count_pod(self, row: int, volumes: PodVolumes, sign: int) -> None:
        for claim in volumes.claims:
            if not claim.is_ephemeral:
                _count_in(self._mounted, claim.key, row, sign)
            self._count_claim(claim.key, row, sign)
        for disk in volumes.disks:
            for identity in disk.identities:
                mounts = self._disks.setdefault(identity, _DiskMounts())
                _count(mounts.read_only if disk.read_only else mounts.writing, row, sign)
                if not (mounts.read_only or mounts.writing):
                    del self._disks[identity]
        for inline in volumes.inline:
            if not inline.problem:
                self._count_volume(inline.volume, row, sign)

    def _count_claim(self, key: str, row: int, sign: int) -> None:
        if key not in self._claims:
            self._depend(key)
        volume = self._volume_of.get(key)
        if volume is not None:
            self._count_volume(volume, row, sign)
        _count_in(self._claims, key, row, sign)
        if key not in self._claims:
            self._release(key)

    # -- storage objects ----------------------------------------------------------------------------------------

    def claim_changed(self, key: str) -> None:
        rows = self._claims.get(key)
        if rows is None:
            return
        old = self._volume_of.get(key)
        self._release(key)
        self._depend(key)
        new = self._volume_of.get(key)
        if new == old:
            return
        for row, count in rows.items():
            if old is not None:
                self._count_volume(old, row, -count)
            if new is not None:
                self._count_volume(new, row, count)

    def volume_changed(self, name: str) -> None:
        """Handle an addition, change or removal of a PersistentVolume."""
        for key in self._claims_of.keys(("volume", name)):
            self.claim_changed(key)
        for key in self._attachments_of.keys(("volume", name)):
            self.attachment_changed(key)

    def class_changed(self, name: str) -> None:
        """Handle an addition, change or removal of a StorageClass."""
        for key in self._claims_of.keys(("class", name)):
            self.claim_changed(key)

    def node_moved(self, name: str) -> None:
        """Handle a node that got or lost its row."""
        for key in self._attachments_of.keys(("node", name)):
            self.attachment_changed(key)

    def attachment_changed(self, key: str) -> None:
        """Handle an addition, change or removal of a VolumeAttachment, its volume or its node."""
        attached = self._attached.pop(key, None)
        if attached is not None:
            self._count_volume(attached[0], attached[1], -1, by_attachment=True)
        self._attachments_of.assign(key, ())
        attachment = self._storage.attachments.get(key)
        if attachment is None:
            return
        spec = attachment.spec
        name = spec.source.persistent_volume_name
        if not spec.attacher or name is None:
            return
        self._attachments_of.assign(key, (("node", spec.node_name), ("volume", name)))
        volume, row = self._storage.volumes.get(name), self._row_of(spec.node_name)
        if row >= 0 and volume is not None and volume.spec.csi is not None:
            found = (spec.attacher, volume.spec.csi.volume_handle)
            self._attached[key] = (found, row)
            self._count_volume(found, row, 1, by_attachment=True)

    def _depend(self, key: str) -> None:
        volume, dependencies = self._resolve(key)
        if volume is not None:
            self._volume_of[key] = volume
        self._claims_of.assign(key, dependencies)

    def _release(self, key: str) -> None:
        self._volume_of.pop(key, None)
        self._claims_of.assign(key, ())

    def _resolve(self, key: str) -> tuple[CsiVolume | None, tuple[_Object, ...]]:
        claim = self._storage.claims.get(key)
        if claim is None:
            return None, ()
        name = claim.spec.volume_name
        volume = self._storage.volumes.get(name) if name else None
        if volume is None:
            return self._provisioned_by(claim.class_name, key), (("volume", name), ("class", claim.class_name))
        dependencies = (("volume", name),)
        if volume.spec.csi is not None:
            found = (volume.spec.csi.driver, volume.spec.csi.volume_handle)
        else:
            plugin = in_tree_plugin(volume)
            if plugin is None or not plugin.is_migrated:
                return None, dependencies
            try:
                found = (plugin.driver, translated_handle(volume, plugin))
            except StorageError:
                return None, dependencies
        return (found if all(found) else None), dependencies

    def _provisioned_by(self, class_name: str, key: str) -> CsiVolume | None:
        storage_class = self._storage.classes.get(class_name) if class_name else None
        if storage_class is None:
            return None
        driver = storage_class.provisioner
        plugin = in_tree_plugin_named(driver)
        if plugin is not None:
            if not plugin.is_migrated:
                return None
            driver = plugin.driver
        return (driver, _UNPROVISIONED + key) if driver else None

    # -- counting -----------------------------------------------------------------------------------------------

    def _count_volume(self, volume: CsiVolume, row: int, change: int, *, by_attachment: bool = False) -> None:
        holders = self._holders.setdefault(volume, _Holders())
        was_there = row in holders.pods or row in holders.attachments
        _count(holders.attachments if by_attachment else holders.pods, row, change)
        is_there = row in holders.pods or row in holders.attachments
        if is_there != was_there:
            driver, more = volume[0], 1 if is_there else -1
            self._counts_with(driver, row)[row] += more
            self._places[driver] = self._places.get(driver, 0) + more
            if not self._places[driver]:
                del self._places[driver], self._counts[driver]
        if not (holders.pods or holders.attachments):
            del self._holders[volume]

    def _counts_with(self, driver: str, row: int) -> NDArray[np.int64]:
        counts = self._counts.get(driver)
        if counts is None or row >= len(counts):
            grown = np.zeros(max(64, 2 * (row + 1)), dtype=np.int64)
            if counts is not None:
                grown[: len(counts)] = counts
            counts = self._counts[driver] = grown
        return counts


def _count(rows: _Rows, row: int, change: int) -> None:
    count = rows.get(row, 0) + change
    if count:
        rows[row] = count
    else:
        rows.pop(row, None)


def _count_in(table: dict[str, _Rows], key: str, row: int, change: int) -> None:
    rows = table.setdefault(key, {})
    _count(rows, row, change)
    if not rows:
        del table[key]
