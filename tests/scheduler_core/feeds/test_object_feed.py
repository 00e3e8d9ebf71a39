"""Storage: which changes reach the index, and which events the queue gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Resource
from scheduler_core.model.meta import AnnotatedMeta, ObjectMeta
from scheduler_core.model.storage import (
    CsiNode,
    CsiNodeDriver,
    CsiNodeSpec,
    StorageObject,
)
from scheduler_core.snapshot.indexes.storage_index import object_key
from tests.support.scheduling import Rig, rig
from tests.support.storage import attachment, capacity, claim, csi_driver, storage_class, volume


@dataclass(frozen=True)
class Kind:
    """An object, another version of it, its table in the index and its name in events."""

    first: StorageObject
    other: StorageObject
    table: str
    resource: Resource

    def known(self, made: Rig) -> object:
        """Return the object in the index."""
        table = getattr(made.context.cache.columns.storage, self.table)
        return table.get(object_key(self.first.metadata))


_BARE_NODE = CsiNode(AnnotatedMeta("n"))
_NODE = CsiNode(AnnotatedMeta("n"), CsiNodeSpec((CsiNodeDriver("d"),)))
_WAITING, _AT_ONCE = storage_class("s"), storage_class("s", waits=False)
_ROOM, _MORE_ROOM = capacity("r", "s", "1Gi", on={}), capacity("r", "s", "2Gi", on={})
_REPORTS, _SILENT = csi_driver("d"), csi_driver("d", reports_capacity=False)
_HERE, _THERE = attachment("a", "d", "n", "v"), attachment("a", "d", "m", "v")
ROWS = [
    Kind(volume("v"), volume("v", size="9Gi"), "volumes", Resource.PERSISTENT_VOLUME),
    Kind(claim("c"), claim("c", volume="v"), "claims", Resource.PERSISTENT_VOLUME_CLAIM),
    Kind(_WAITING, _AT_ONCE, "classes", Resource.STORAGE_CLASS),
    Kind(_BARE_NODE, _NODE, "csi_nodes", Resource.CSI_NODE),
    Kind(_REPORTS, _SILENT, "drivers", Resource.CSI_DRIVER),
    Kind(_ROOM, _MORE_ROOM, "capacities", Resource.CSI_STORAGE_CAPACITY),
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
    heard: Events = []

    def on_event(event: ClusterEvent, old: object | None, new: object | None, exclude: str = "") -> None:
        del exclude
        heard.append((event, old, new))

    monkeypatch.setattr(made.queue, "on_event", on_event)
    return heard


def of_version(shown: StorageObject, version: str) -> Any:
    """Return the same object in another version."""
    metadata: ObjectMeta = replace(shown.metadata, resource_version=version, generation=int(version))
    return replace(shown, metadata=metadata)


@pytest.mark.parametrize("kind", KINDS)
def test_each_change_reaches_index_and_queue(made: Rig, events: Events, kind: Kind) -> None:
    """Additions, updates and deletions are events with the object before and after."""
    feed = made.scheduler.storage_feed
    feed.added(kind.first)
    assert kind.known(made) is kind.first
    feed.updated(kind.first, kind.other)
    assert kind.known(made) is kind.other
    feed.deleted(kind.other)
    assert kind.known(made) is None
    assert events == [
        (ClusterEvent(kind.resource, Action.ADD), None, kind.first),
        (ClusterEvent(kind.resource, Action.UPDATE_OTHER), kind.first, kind.other),
        (ClusterEvent(kind.resource, Action.DELETE), kind.other, None),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_version_without_a_change_is_an_event(made: Rig, events: Events, kind: Kind) -> None:
    """Writes depend on it: one that failed for the old version may succeed now."""
    feed = made.scheduler.storage_feed
    feed.added(kind.first)
    events.clear()
    same = of_version(kind.first, "7")
    feed.updated(kind.first, same)
    assert kind.known(made) is same
    assert events == [(ClusterEvent(kind.resource, Action.UPDATE_OTHER), kind.first, same)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_version_again_requeues_no_pod(made: Rig, events: Events, kind: Kind) -> None:
    """A repeated list delivers most objects unchanged."""
    feed = made.scheduler.storage_feed
    feed.added(kind.first)
    events.clear()
    feed.updated(kind.first, replace(kind.first))
    assert events == []


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(volume("v", size="plenty"), id="volume"),
        pytest.param(capacity("r", "s", "plenty", on={}), id="capacity"),
    ],
)
def test_what_cannot_be_read_is_left_out(
    made: Rig, events: Events, caplog: pytest.LogCaptureFixture, bad: StorageObject
) -> None:
    """It is logged, requeues no pod, and can be deleted."""
    feed = made.scheduler.storage_feed
    feed.added(bad)
    storage = made.context.cache.columns.storage
    assert (len(storage.volumes), len(storage.capacities), events) == (0, 0, [])
    assert f"{bad.metadata.name} is ignored" in caplog.text
    feed.deleted(bad)
