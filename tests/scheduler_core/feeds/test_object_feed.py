"""The feed of storage objects: changes of the storage index, and events for the queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.storage import UNREADABLE, CsiNode, CsiNodeDriver, CsiNodeSpec, StorageObject
from scheduler_core.snapshot.indexes.storage_index import object_key
from tests.support.scheduling import Rig, rig
from tests.support.storage import attachment, capacity, claim, csi_driver, storage_class, volume
from tests.support.tables import table


@dataclass(frozen=True)
class Kind:
    """A storage object, another version of it, its table in the index and its resource in events."""

    first: StorageObject
    other: StorageObject
    table: str
    resource: Resource

    def in_index(self, made: Rig) -> object:
        table = getattr(made.columns.storage, self.table)
        return table.get(object_key(self.first.metadata))


_BARE_NODE = CsiNode(AnnotatedMeta("n"))
_NODE = CsiNode(AnnotatedMeta("n"), CsiNodeSpec((CsiNodeDriver("d"),)))
_WAITING, _IMMEDIATE = storage_class("s"), storage_class("s", waits=False)
_CAPACITY, _MORE_CAPACITY = capacity("r", "s", "1Gi", on={}), capacity("r", "s", "2Gi", on={})
_REPORTS, _SILENT = csi_driver("d"), csi_driver("d", reports_capacity=False)
_HERE, _THERE = attachment("a", "d", "n", "v"), attachment("a", "d", "m", "v")
ROWS = [
    Kind(volume("v"), volume("v", size="9Gi"), "volumes", Resource.PERSISTENT_VOLUME),
    Kind(claim("c"), claim("c", volume="v"), "claims", Resource.PERSISTENT_VOLUME_CLAIM),
    Kind(_WAITING, _IMMEDIATE, "classes", Resource.STORAGE_CLASS),
    Kind(_BARE_NODE, _NODE, "csi_nodes", Resource.CSI_NODE),
    Kind(_REPORTS, _SILENT, "drivers", Resource.CSI_DRIVER),
    Kind(_CAPACITY, _MORE_CAPACITY, "capacities", Resource.CSI_STORAGE_CAPACITY),
    Kind(_HERE, _THERE, "attachments", Resource.VOLUME_ATTACHMENT),
]
KINDS = [pytest.param(row, id=row.resource.value) for row in ROWS]
Events = list[tuple[ClusterEvent, object | None, object | None]]


@pytest.fixture
def made() -> Rig:
    return rig()


@pytest.fixture
def events(made: Rig, monkeypatch: pytest.MonkeyPatch) -> Events:
    """Return the events that the queue gets."""
    received: Events = []

    def on_event(event: ClusterEvent, old: object | None, new: object | None, exclude: str = "") -> None:
        del exclude
        received.append((event, old, new))

    monkeypatch.setattr(made.queue, "on_event", on_event)
    return received


def of_version(each: StorageObject, version: str) -> Any:
    """Return the same object in another version."""
    metadata: ObjectMeta = replace(each.metadata, resource_version=version, generation=int(version))
    return replace(each, metadata=metadata)


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_reaches_index_and_queue(made: Rig, events: Events, kind: Kind) -> None:
    """Additions, updates and deletions are events with the object before and after."""
    feed = made.scheduler.storage_feed
    feed.added(kind.first)
    assert kind.in_index(made) is kind.first
    feed.updated(kind.first, kind.other)
    assert kind.in_index(made) is kind.other
    feed.deleted(kind.other)
    assert kind.in_index(made) is None
    assert events == [
        (ClusterEvent(kind.resource, Action.ADD), None, kind.first),
        (ClusterEvent(kind.resource, Action.UPDATE_OTHER), kind.first, kind.other),
        (ClusterEvent(kind.resource, Action.DELETE), kind.other, None),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_version_without_a_change_is_an_event(made: Rig, events: Events, kind: Kind) -> None:
    """A new resourceVersion alone is an event, because a write that failed for the old version may succeed."""
    feed = made.scheduler.storage_feed
    feed.added(kind.first)
    events.clear()
    same = of_version(kind.first, "7")
    feed.updated(kind.first, same)
    assert kind.in_index(made) is same
    assert events == [(ClusterEvent(kind.resource, Action.UPDATE_OTHER), kind.first, same)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_version_again_requeues_no_pod(made: Rig, events: Events, kind: Kind) -> None:
    """An object with an unchanged resourceVersion, as in a repeated list, is no event."""
    feed = made.scheduler.storage_feed
    feed.added(kind.first)
    events.clear()
    feed.updated(kind.first, replace(kind.first))
    assert events == []


@table("invalid", ("volume", volume("v", size="plenty")), ("capacity", capacity("r", "s", "plenty", on={})))
def test_an_invalid_object_fails_closed(
    made: Rig, events: Events, caplog: pytest.LogCaptureFixture, invalid: StorageObject
) -> None:
    """An invalid object is logged, no pod is scheduled by it or requeued, and it can be deleted."""
    feed = made.scheduler.storage_feed
    feed.added(invalid)
    storage = made.columns.storage
    assert {each.status.phase for each in storage.volumes} <= {UNREADABLE}
    assert (len(storage.capacities), events) == (0, [])
    assert f"{invalid.metadata.name} cannot be used" in caplog.text
    feed.deleted(invalid)
