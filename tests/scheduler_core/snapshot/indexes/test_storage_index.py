"""The storage index finds volumes by class and claim, and lets what was assumed stand before what is shown."""

from collections.abc import Callable

import msgspec
import pytest

from scheduler_core.errors import QuantityError, StorageError
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.storage import ClaimPointer, PersistentVolume, StorageObject, VolumeNodeAffinity
from scheduler_core.snapshot.indexes.storage_index import KnownVolume, StorageIndex, volume_affinity
from tests.support.storage import capacity, claim, csi_driver, csi_node, reached_from, storage_class, volume


def index(*storage: StorageObject) -> StorageIndex:
    filled = StorageIndex(lambda _: -1)
    for shown in storage:
        filled.assign(shown)
    return filled


def free(storage: StorageIndex, class_name: str = "local") -> list[str]:
    return [known.volume.metadata.name for known in storage.free_volumes(class_name)]


def kept(pv: PersistentVolume, name: str = "data", uid: str = "uid-of-default-data") -> PersistentVolume:
    return msgspec.structs.replace(
        pv, spec=msgspec.structs.replace(pv.spec, claim_ref=ClaimPointer("default", name, uid))
    )


def test_free_volumes_come_smallest_first_then_by_name() -> None:
    """Whatever the order in which they came."""
    storage = index(volume("b", size="5Gi"), volume("c", size="1Gi"), volume("a", size="5Gi"))
    assert free(storage) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("pv", "found_in"),
    [
        pytest.param(volume(storage_class="fast"), "fast", id="field"),
        pytest.param(
            volume(storage_class="fast", annotations={"volume.beta.kubernetes.io/storage-class": "slow"}),
            "slow",
            id="annotation-goes-first",
        ),
        pytest.param(volume(storage_class=""), "", id="no-class"),
    ],
)
def test_volumes_are_found_by_class(pv: PersistentVolume, found_in: str) -> None:
    """A volume stands in exactly one class."""
    storage = index(pv)
    assert [name for name in ("fast", "slow", "") if free(storage, name)] == [found_in]


def test_volume_that_is_kept_is_not_free() -> None:
    """It is found through its claim, if that is of the UID which the volume names."""
    mine, other = claim("data"), claim("other")
    storage = index(volume("a", kept_for=mine), volume("b", kept_for="default/data"), kept(volume("c"), uid="gone"))
    assert free(storage) == []
    assert [known.volume.metadata.name for known in storage.volumes_reserved_for(mine)] == ["a", "b"]
    assert storage.volumes_reserved_for(other) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda storage: storage.remove(volume("a")), id="removed"),
        pytest.param(lambda storage: storage.assign(volume("a", storage_class="fast")), id="another-class"),
        pytest.param(lambda storage: storage.assign(volume("a", kept_for="default/x")), id="kept"),
        pytest.param(lambda storage: storage.assume_volume(kept(volume("a"))), id="assumed"),
    ],
)
def test_volume_leaves_the_free_ones(change: Callable[[StorageIndex], None]) -> None:
    """A change takes effect at once and touches no other volume."""
    storage = index(volume("a"), volume("b"))
    change(storage)
    assert free(storage) == ["b"]


def test_size_of_a_volume_moves_it() -> None:
    """A volume that has grown stands where its new size belongs."""
    storage = index(volume("a", size="1Gi"), volume("b", size="2Gi"))
    storage.assign(volume("a", size="3Gi", version="2"))
    assert free(storage) == ["b", "a"]


def test_assumed_stands_before_shown_until_restored() -> None:
    """What other plugins look up stays what the API server shows."""
    storage = index(volume("a"))
    assumed = kept(volume("a"))
    storage.assume_volume(assumed)
    assert storage.volumes.current("a") == assumed
    assert storage.volumes.get("a") == volume("a")
    storage.restore_volume(assumed)
    assert storage.volumes.current("a") == volume("a")
    assert free(storage) == ["a"]


def test_newer_version_ends_what_was_assumed() -> None:
    """The API server's word of a later version counts, a resync does not."""
    storage = index(volume("a"), claim("data"))
    storage.assume_volume(kept(volume("a")))
    storage.assign(volume("a"))
    assert free(storage) == []
    storage.assign(volume("a", version="2"))
    assert free(storage) == ["a"]


def test_object_that_is_gone_is_not_assumed_any_more() -> None:
    """Neither under its old version nor when it comes again."""
    storage = index(claim("data"))
    storage.assume_claim(claim("data", annotations={"x": "y"}))
    storage.remove(claim("data"))
    assert storage.claims.current("default/data") is None
    storage.assign(claim("data"))
    assert storage.claims.current("default/data") == claim("data")


def test_restoring_an_older_version_changes_nothing() -> None:
    """A write that happened raised the version; its undoing must not touch what came after."""
    storage = index(claim("data"))
    assumed = claim("data", annotations={"x": "y"})
    storage.assume_claim(assumed)
    storage.restore_claim(claim("data", version="2"))
    assert storage.claims.current("default/data") == assumed


@pytest.mark.parametrize(
    ("pv", "reason"),
    [
        pytest.param(volume("gone"), '"gone" not found', id="gone"),
        pytest.param(volume("a", version="7"), '"a" is out of sync (stored: 1, assume: 7)', id="another-version"),
    ],
)
def test_what_cannot_be_assumed(pv: PersistentVolume, reason: str) -> None:
    """The error says what is there and what was handed in."""
    storage = index(volume("a"))
    with pytest.raises(StorageError) as caught:
        storage.assume_volume(pv)
    assert str(caught.value) == reason


def test_unreadable_quantity_changes_nothing() -> None:
    """The object of before stays."""
    storage = index(volume("a", size="1Gi"))
    with pytest.raises(QuantityError):
        storage.assign(volume("a", size="much"))
    assert storage.volumes.get("a") == volume("a", size="1Gi")


def test_capacities_are_found_by_class() -> None:
    """One that changes its class or goes leaves the old one."""
    one, two = capacity("one", "fast", "1Gi", on={}), capacity("two", "fast", "1Gi", on={})
    storage = index(one, two)
    storage.assign(capacity("one", "slow", "1Gi", on={}))
    storage.remove(two)
    assert list(storage.capacities_of("fast")) == []
    assert [each.metadata.name for each in storage.capacities_of("slow")] == ["one"]


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(storage_class("x"), id="class"),
        pytest.param(csi_node("x"), id="csi-node"),
        pytest.param(csi_driver("x"), id="driver"),
    ],
)
def test_objects_come_and_go(shown: StorageObject) -> None:
    """Each kind has its own table."""
    storage = index(shown)
    tables = (storage.classes, storage.csi_nodes, storage.drivers)
    assert [each for each in (table.get("x") for table in tables) if each is not None] == [shown]
    storage.remove(shown)
    assert not any(len(table) for table in tables)


def affinity_of(*terms: NodeSelectorTerm) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(NodeSelector(terms))


LABEL = Requirement("zone", "In", ("a",))
NAME = Requirement("metadata.name", "In", ("n1",))


@pytest.mark.parametrize(
    ("affinity", "here", "elsewhere"),
    [
        pytest.param(None, True, True, id="none"),
        pytest.param(VolumeNodeAffinity(), True, True, id="nothing-required"),
        pytest.param(reached_from({"zone": ["a"]}), True, False, id="label"),
        pytest.param(affinity_of(), False, False, id="no-terms"),
        pytest.param(affinity_of(NodeSelectorTerm()), False, False, id="empty-term"),
        pytest.param(affinity_of(NodeSelectorTerm((LABEL,), (NAME,))), True, False, id="name-is-passed-over"),
        pytest.param(affinity_of(NodeSelectorTerm((), (NAME,))), True, True, id="name-alone"),
        pytest.param(
            affinity_of(NodeSelectorTerm((Requirement("zone", "Odd"),)), NodeSelectorTerm((LABEL,))),
            True,
            False,
            id="unreadable-term",
        ),
    ],
)
def test_affinity_of_a_volume(affinity: VolumeNodeAffinity | None, here: bool, elsewhere: bool) -> None:
    """Labels decide, names never do."""
    matcher = volume_affinity(affinity)
    for zone, expected in (("a", here), ("b", elsewhere)):
        assert (matcher is None or matcher.matches({"zone": zone}, "n2")) is expected


def test_affinity_is_compiled_once() -> None:
    """A change of a volume that leaves its affinity as it is keeps the compiled one."""
    storage = index(volume("a", on={"zone": ["a"]}))
    before = storage.known_volume("a")
    storage.assign(volume("a", on={"zone": ["a"]}, version="2"))
    after = storage.known_volume("a")
    assert isinstance(before, KnownVolume)
    assert isinstance(after, KnownVolume)
    assert before.affinity is after.affinity
    assert after.volume.metadata.resource_version == "2"
