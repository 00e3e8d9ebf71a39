"""Index of volumes by class and claim. An assumed object overrides the object of the API server."""

from collections.abc import Callable

import msgspec
import pytest

from scheduler_core.errors import QuantityError, StorageError
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.storage import ClaimPointer, PersistentVolume, StorageObject, VolumeNodeAffinity
from scheduler_core.snapshot.indexes.storage_index import KnownVolume, StorageIndex, volume_affinity
from scheduler_core.step_counter import StepCounter
from tests.support.storage import accessible_from, capacity, claim, csi_driver, csi_node, storage_class, volume
from tests.support.tables import table


def index(*storage: StorageObject) -> StorageIndex:
    filled = StorageIndex(lambda _: -1, StepCounter())
    for stored in storage:
        filled.assign(stored)
    return filled


def free(storage: StorageIndex, class_name: str = "local") -> list[str]:
    return [known.volume.metadata.name for known in storage.free_volumes(class_name)]


def reserved(pv: PersistentVolume, name: str = "data", uid: str = "uid-of-default-data") -> PersistentVolume:
    return msgspec.structs.replace(
        pv, spec=msgspec.structs.replace(pv.spec, claim_ref=ClaimPointer("default", name, uid))
    )


def test_free_volumes_are_sorted_by_size_and_name() -> None:
    """The order in which volumes were added has no effect."""
    storage = index(volume("b", size="5Gi"), volume("c", size="1Gi"), volume("a", size="5Gi"))
    assert free(storage) == ["c", "a", "b"]


@table(
    "pv, found_in",
    ("field", volume(storage_class="fast"), "fast"),
    (
        "annotation-overrides-the-field",
        volume(storage_class="fast", annotations={"volume.beta.kubernetes.io/storage-class": "slow"}),
        "slow",
    ),
    ("no-class", volume(storage_class=""), ""),
)
def test_volumes_are_found_by_class(pv: PersistentVolume, found_in: str) -> None:
    """A volume belongs to exactly one class."""
    storage = index(pv)
    assert [name for name in ("fast", "slow", "") if free(storage, name)] == [found_in]


def test_reserved_volumes_are_not_free() -> None:
    """A reserved volume is found by its claim, unless the volume names another UID of the claim."""
    mine, other = claim("data"), claim("other")
    storage = index(
        volume("a", claim_ref=mine), volume("b", claim_ref="default/data"), reserved(volume("c"), uid="gone")
    )
    assert free(storage) == []
    assert [known.volume.metadata.name for known in storage.volumes_reserved_for(mine)] == ["a", "b"]
    assert storage.volumes_reserved_for(other) == []


@table(
    "change",
    ("removed", lambda storage: storage.remove(volume("a"))),
    ("another-class", lambda storage: storage.assign(volume("a", storage_class="fast"))),
    ("reserved-for-a-claim", lambda storage: storage.assign(volume("a", claim_ref="default/x"))),
    ("assumed", lambda storage: storage.assume_volume(reserved(volume("a")))),
)
def test_changes_that_make_a_volume_unavailable(change: Callable[[StorageIndex], None]) -> None:
    """A volume that is removed, reserved, assumed, or of another class is not free."""
    storage = index(volume("a"), volume("b"))
    change(storage)
    assert free(storage) == ["b"]


def test_a_resized_volume_is_sorted_again() -> None:
    """A volume that has grown is sorted by its new size."""
    storage = index(volume("a", size="1Gi"), volume("b", size="2Gi"))
    storage.assign(volume("a", size="3Gi", version="2"))
    assert free(storage) == ["b", "a"]


def test_an_assumed_volume_overrides_the_stored_one_until_it_is_restored() -> None:
    """current() returns the assumed volume; get() returns the API server's."""
    storage = index(volume("a"))
    assumed = reserved(volume("a"))
    storage.assume_volume(assumed)
    assert storage.volumes.current("a") == assumed
    assert storage.volumes.get("a") == volume("a")
    storage.restore_volume(assumed)
    assert storage.volumes.current("a") == volume("a")
    assert free(storage) == ["a"]


def test_a_newer_version_replaces_the_assumed_volume() -> None:
    """An update with a later resourceVersion replaces the assumed volume; a resync does not."""
    storage = index(volume("a"), claim("data"))
    storage.assume_volume(reserved(volume("a")))
    storage.assign(volume("a"))
    assert free(storage) == []
    storage.assign(volume("a", version="2"))
    assert free(storage) == ["a"]


def test_a_removed_object_is_not_assumed() -> None:
    """Removing a claim also removes its assumed version."""
    storage = index(claim("data"))
    storage.assume_claim(claim("data", annotations={"x": "y"}))
    storage.remove(claim("data"))
    assert storage.claims.current("default/data") is None
    storage.assign(claim("data"))
    assert storage.claims.current("default/data") == claim("data")


def test_restoring_another_version_changes_nothing() -> None:
    """restore_claim() has no effect if the given resourceVersion is not that of the assumed claim."""
    storage = index(claim("data"))
    assumed = claim("data", annotations={"x": "y"})
    storage.assume_claim(assumed)
    storage.restore_claim(claim("data", version="2"))
    assert storage.claims.current("default/data") == assumed


@table(
    "pv, reason",
    ("missing", volume("gone"), '"gone" not found'),
    ("another-version", volume("a", version="7"), '"a" is out of sync (stored: 1, assume: 7)'),
)
def test_volumes_that_cannot_be_assumed(pv: PersistentVolume, reason: str) -> None:
    """The error has the stored version and the version to assume."""
    storage = index(volume("a"))
    with pytest.raises(StorageError) as caught:
        storage.assume_volume(pv)
    assert str(caught.value) == reason


def test_an_invalid_quantity_changes_nothing() -> None:
    """The previous volume is still stored."""
    storage = index(volume("a", size="1Gi"))
    with pytest.raises(QuantityError):
        storage.assign(volume("a", size="much"))
    assert storage.volumes.get("a") == volume("a", size="1Gi")


def test_capacities_are_found_by_class() -> None:
    """A capacity that changes its class or is removed is not found in the old class."""
    one, two = capacity("one", "fast", "1Gi", on={}), capacity("two", "fast", "1Gi", on={})
    storage = index(one, two)
    storage.assign(capacity("one", "slow", "1Gi", on={}))
    storage.remove(two)
    assert list(storage.capacities_of("fast")) == []
    assert [each.metadata.name for each in storage.capacities_of("slow")] == ["one"]


@table("stored", ("class", storage_class("x")), ("csi-node", csi_node("x")), ("driver", csi_driver("x")))
def test_objects_are_stored_by_kind(stored: StorageObject) -> None:
    """Each kind has its own table, from which objects can be removed."""
    storage = index(stored)
    tables = (storage.classes, storage.csi_nodes, storage.drivers)
    assert [each for each in (table.get("x") for table in tables) if each is not None] == [stored]
    storage.remove(stored)
    assert not any(len(table) for table in tables)


def affinity_of(*terms: NodeSelectorTerm) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(NodeSelector(terms))


LABEL = Requirement("zone", "In", ("a",))
NAME = Requirement("metadata.name", "In", ("n1",))


@table(
    "affinity, here, elsewhere",
    ("none", None, True, True),
    ("nothing-required", VolumeNodeAffinity(), True, True),
    ("label", accessible_from({"zone": ["a"]}), True, False),
    ("no-terms", affinity_of(), False, False),
    ("empty-term", affinity_of(NodeSelectorTerm()), False, False),
    ("name-is-ignored", affinity_of(NodeSelectorTerm((LABEL,), (NAME,))), True, False),
    ("name-alone", affinity_of(NodeSelectorTerm((), (NAME,))), True, True),
    (
        "invalid-term",
        affinity_of(NodeSelectorTerm((Requirement("zone", "Odd"),)), NodeSelectorTerm((LABEL,))),
        True,
        False,
    ),
)
def test_affinity_of_a_volume(affinity: VolumeNodeAffinity | None, here: bool, elsewhere: bool) -> None:
    """Only labels are matched; requirements on node names are ignored."""
    matcher = volume_affinity(affinity)
    for zone, expected in (("a", here), ("b", elsewhere)):
        assert (matcher is None or matcher.matches({"zone": zone}, "n2")) is expected


def test_affinity_is_compiled_once() -> None:
    """An update of a volume with equal affinity reuses the compiled affinity."""
    storage = index(volume("a", on={"zone": ["a"]}))
    before = storage.known_volume("a")
    storage.assign(volume("a", on={"zone": ["a"]}, version="2"))
    after = storage.known_volume("a")
    assert isinstance(before, KnownVolume)
    assert isinstance(after, KnownVolume)
    assert before.affinity is after.affinity
    assert after.volume.metadata.resource_version == "2"
