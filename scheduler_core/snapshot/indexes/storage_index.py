"""Storage objects of the API server, indexed for lookups by plugins, with the assumed versions of volumes and claims.

An assumed volume or claim takes precedence over the API server's object until the latter has another version:

    shown --assume--> assumed --restore--> shown
                         |
                         +--a newer version is shown, or it is deleted--> shown / deleted

Assumed objects are shared by all profiles; in kube-scheduler a pod of a second profile may get the same volume again.
Follows kube-scheduler v1.37.1, ``plugins/volumebinding/passive_assume_cache.go``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from scheduler_core.errors import SchedulerCoreError, SelectorError, StorageError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_requests import nano, value
from scheduler_core.model.selectors import NodeMatcher, compile_label_selector, compile_node_selector
from scheduler_core.model.storage import (
    STORAGE,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    VolumeAttachment,
    VolumeNodeAffinity,
)
from scheduler_core.snapshot.indexes.volume_use import VolumeUse
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter


class _Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=_Named)


def object_key(metadata: ObjectMeta) -> str:
    """Return ``namespace/name``, or the name of a cluster-scoped object."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


class ObjectTable(Generic[T]):
    """Objects of a kind by key, with their assumed versions; *version* counts changes by the API server."""

    __slots__ = ("_assumed", "_shown", "version")

    def __init__(self) -> None:
        self._shown: dict[str, T] = {}
        self._assumed: dict[str, T] = {}
        self.version = 0

    def __iter__(self) -> Iterator[T]:
        return iter(self._shown.values())

    def __len__(self) -> int:
        return len(self._shown)

    def get(self, key: str) -> T | None:
        return self._shown.get(key)

    def current(self, key: str) -> T | None:
        """Return the assumed object, else that of the API server."""
        return self._assumed.get(key) or self._shown.get(key)

    def assign(self, key: str, shown: T) -> T | None:
        """Set the object of the API server and return the previous one; an assumed other version is dropped."""
        old = self._shown.get(key)
        self._shown[key] = shown
        assumed = self._assumed.get(key)
        if assumed is not None and assumed.metadata.resource_version != shown.metadata.resource_version:
            del self._assumed[key]
        self.version += 1
        return old

    def remove(self, key: str) -> T | None:
        self._assumed.pop(key, None)
        self.version += 1
        return self._shown.pop(key, None)

    def assume(self, key: str, changed: T) -> None:
        """Assume a version until the API server reports another. Raises StorageError: the object has changed."""
        shown = self._shown.get(key)
        if shown is None:
            raise StorageError(f'"{key}" not found')
        stored, assumed = shown.metadata.resource_version, changed.metadata.resource_version
        if stored != assumed:
            raise StorageError(f'"{key}" is out of sync (stored: {stored}, assume: {assumed})')
        self._assumed[key] = changed

    def restore(self, key: str, changed: T) -> bool:
        """Drop the assumed object if it still has that version; return whether it was dropped."""
        assumed = self._assumed.get(key)
        if assumed is None or assumed.metadata.resource_version != changed.metadata.resource_version:
            return False
        del self._assumed[key]
        return True


@dataclass(frozen=True, slots=True)
class KnownVolume:
    """A volume with its most used properties.

    Attributes:
        volume: The assumed volume, else that of the API server.
        size: Its capacity in nano-bytes; 0 without one.
        affinity: The nodes from which it is accessible; None for all.
    """

    volume: PersistentVolume
    size: int
    affinity: NodeMatcher | None


def volume_affinity(affinity: VolumeNodeAffinity | None) -> NodeMatcher | None:
    """Compile a volume's node affinity.

    Returns:
        A matcher of labels only (conditions on the node's name are ignored, as in kube-scheduler); None if every node
        matches.
    """
    if affinity is None or affinity.required is None:
        return None
    terms = compile_node_selector(affinity.required).terms
    if any(not (term.labels or term.problems) for term in terms):
        return None
    if any(term.fields for term in terms):
        terms = tuple(type(term)(term.labels, (), term.problems) for term in terms)
    return NodeMatcher(terms)


_SizeAndName = tuple[int, str]


class StorageIndex:
    def __init__(
        self, row_of: Callable[[str], int], steps: StepCounter, pods: Sequence[Mapping[str, PodInfo]] = ()
    ) -> None:
        self._pods = pods
        self.volumes: ObjectTable[PersistentVolume] = ObjectTable()
        self.claims: ObjectTable[PersistentVolumeClaim] = ObjectTable()
        self.classes: ObjectTable[StorageClass] = ObjectTable()
        self.csi_nodes: ObjectTable[CsiNode] = ObjectTable()
        self.drivers: ObjectTable[CsiDriver] = ObjectTable()
        self.capacities: ObjectTable[CsiStorageCapacity] = ObjectTable()
        self.attachments: ObjectTable[VolumeAttachment] = ObjectTable()
        self._known: dict[str, KnownVolume] = {}
        self._free: dict[str, list[_SizeAndName]] = {}
        self._reserved: dict[tuple[str, str], dict[str, None]] = {}
        self._capacities_of: dict[str, dict[str, CsiStorageCapacity]] = {}
        self.use = use = VolumeUse(self, row_of, steps)
        self._kinds: dict[type[StorageObject], tuple[ObjectTable[Any], Callable[[str, Any], object]]] = {
            PersistentVolume: (self.volumes, self._volume_changed),
            PersistentVolumeClaim: (self.claims, lambda key, _: use.claim_changed(key)),
            StorageClass: (self.classes, lambda key, _: use.class_changed(key)),
            CsiNode: (self.csi_nodes, lambda *_: None),
            CsiDriver: (self.drivers, lambda *_: None),
            CsiStorageCapacity: (self.capacities, self._capacity_changed),
            VolumeAttachment: (self.attachments, lambda key, _: use.attachment_changed(key)),
        }
        """Table of each kind, and what a change of an object concerns: called with its key, and with it as it was."""

    # -- looking up ---------------------------------------------------------------------------------------------

    def known_volume(self, name: str) -> KnownVolume | None:
        """Return a volume, assumed or of the API server, with its size and compiled affinity."""
        return self._known.get(name)

    def free_volumes(self, class_name: str) -> Iterable[KnownVolume]:
        """Return the volumes of a class that are reserved for no claim, by size and name."""
        known = self._known
        return (known[name] for _, name in self._free.get(class_name, ()))

    def volumes_reserved_for(self, claim: PersistentVolumeClaim) -> list[KnownVolume]:
        """Return the volumes of the claim's class that are bound to or reserved for it, by size and name."""
        names = self._reserved.get((claim.class_name, claim.key), ())
        found = [self._known[name] for name in names if self._known[name].volume.is_reserved_for(claim)]
        return sorted(found, key=lambda known: (known.size, known.volume.metadata.name))

    def capacities_of(self, class_name: str) -> Iterable[CsiStorageCapacity]:
        return self._capacities_of.get(class_name, {}).values()

    def capacities_reaching(self, class_name: str, labels: Mapping[str, str]) -> list[CsiStorageCapacity]:
        """Return the capacities of a class that are accessible from a node with these labels, the largest first."""
        found = []
        for capacity in self.capacities_of(class_name):
            try:
                selector = compile_label_selector(capacity.node_topology)
            except SelectorError:
                continue
            if not selector.nothing and selector.matches(labels):
                found.append((0 if capacity.volume_limit is None else -value(capacity.volume_limit), capacity))
        return [capacity for _, capacity in sorted(found, key=lambda each: (each[0], each[1].metadata.name))]

    # -- what the API server shows ------------------------------------------------------------------------------

    def assign(self, shown: StorageObject) -> None:
        """Add or replace an object of the API server. Raises QuantityError: a quantity is invalid."""
        key = object_key(shown.metadata)
        if isinstance(shown, PersistentVolume):
            _size(shown)
        elif isinstance(shown, CsiStorageCapacity) and shown.volume_limit is not None:
            nano(shown.volume_limit)
        table, changed = self._kinds[type(shown)]
        with self._repaired():
            changed(key, table.assign(key, shown))

    def remove(self, gone: StorageObject) -> None:
        key = object_key(gone.metadata)
        table, changed = self._kinds[type(gone)]
        with self._repaired():
            changed(key, table.remove(key))

    @contextmanager
    def _repaired(self) -> Iterator[None]:
        """Compute the indexes again if an unexpected exception interrupts their change."""
        try:
            yield
        except SchedulerCoreError:
            raise
        except Exception:
            self.rebuild()
            raise

    def rebuild(self) -> None:
        """Compute all indexes again from the objects and the pods on nodes."""
        for index in (self._known, self._free, self._reserved, self._capacities_of):
            index.clear()
        for volume in self.volumes:
            self._index_volume(volume.metadata.name)
        for capacity in self.capacities:
            self._capacity_changed(object_key(capacity.metadata), None)
        self.use.rebuild(self._pods)

    def _volume_changed(self, key: str, _: object) -> None:
        self._index_volume(key)
        self.use.volume_changed(key)

    def _capacity_changed(self, key: str, old: CsiStorageCapacity | None) -> None:
        if old is not None:
            of_class = self._capacities_of[old.storage_class_name]
            del of_class[key]
            if not of_class:
                del self._capacities_of[old.storage_class_name]
        shown = self.capacities.get(key)
        if shown is not None:
            self._capacities_of.setdefault(shown.storage_class_name, {})[key] = shown

    # -- what is assumed ----------------------------------------------------------------------------------------

    def assume_volume(self, changed: PersistentVolume) -> None:
        """Assume a volume of the same class and size. Raises StorageError: it has another version."""
        name = changed.metadata.name
        with self._repaired():
            self.volumes.assume(name, changed)
            self._index_volume(name)

    def restore_volume(self, changed: PersistentVolume) -> None:
        """Drop an assumed volume if it still has that version."""
        with self._repaired():
            if self.volumes.restore(changed.metadata.name, changed):
                self._index_volume(changed.metadata.name)

    def assume_claim(self, changed: PersistentVolumeClaim) -> None:
        """Assume a claim; raise StorageError if the claim does not exist, or has another version."""
        self.claims.assume(changed.key, changed)

    def restore_claim(self, changed: PersistentVolumeClaim) -> None:
        """Drop an assumed claim if it still has that version."""
        self.claims.restore(changed.key, changed)

    def _index_volume(self, name: str) -> None:
        old = self._known.pop(name, None)
        if old is not None:
            self._drop_volume(old)
        volume = self.volumes.current(name)
        if volume is None:
            return
        if old is not None and old.volume.spec.node_affinity == volume.spec.node_affinity:
            known = replace(old, volume=volume, size=_size(volume))
        else:
            known = KnownVolume(volume, _size(volume), volume_affinity(volume.spec.node_affinity))
        self._known[name] = known
        if volume.spec.claim_ref is None:
            insort(self._free.setdefault(volume.class_name, []), (known.size, name))
        else:
            self._reserved.setdefault(_reservation_key(volume), {})[name] = None

    def _drop_volume(self, old: KnownVolume) -> None:
        volume, name = old.volume, old.volume.metadata.name
        if volume.spec.claim_ref is not None:
            reserved = self._reserved[_reservation_key(volume)]
            del reserved[name]
            if not reserved:
                del self._reserved[_reservation_key(volume)]
            return
        free = self._free[volume.class_name]
        del free[bisect_left(free, (old.size, name))]
        if not free:
            del self._free[volume.class_name]


def _reservation_key(volume: PersistentVolume) -> tuple[str, str]:
    pointer = volume.spec.claim_ref
    return volume.class_name, "" if pointer is None else f"{pointer.namespace}/{pointer.name}"


def _size(volume: PersistentVolume) -> int:
    return nano(volume.spec.capacity.get(STORAGE, 0))
