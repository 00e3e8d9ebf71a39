"""Storage: which change reaches the index, and what the queue is told."""

from __future__ import annotations

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
from scheduler_core.snapshot.storage_index import StorageIndex, object_key
from tests.support.scheduling import Rig, rig
from tests.support.storage import attachment, capacity, claim, csi_driver, storage_class, volume

KINDS = [
    pytest.param(volume("v"), volume("v", size="9Gi"), "volumes", Resource.PERSISTENT_VOLUME, id="PersistentVolume"),
    pytest.param(claim("c"), claim("c", volume="v"), "claims", Resource.PERSISTENT_VOLUME_CLAIM, id="claim"),
    pytest.param(
        storage_class("s"), storage_class("s", waits=False), "classes", Resource.STORAGE_CLASS, id="StorageClass"
    ),
    pytest.param(
        CsiNode(AnnotatedMeta("n")),
        CsiNode(AnnotatedMeta("n"), CsiNodeSpec((CsiNodeDriver("d"),))),
        "csi_nodes",
        Resource.CSI_NODE,
        id="CSINode",
    ),
    pytest.param(
        csi_driver("d"), csi_driver("d", reports_capacity=False), "drivers", Resource.CSI_DRIVER, id="CSIDriver"
    ),
    pytest.param(
        capacity("r", "s", "1Gi", on={}),
        capacity("r", "s", "2Gi", on={}),
        "capacities",
        Resource.CSI_STORAGE_CAPACITY,
        id="CSIStorageCapacity",
    ),
    pytest.param(
        attachment("a", "d", "n", "v"),
        attachment("a", "d", "m", "v"),
        "attachments",
        Resource.VOLUME_ATTACHMENT,
        id="VolumeAttachment",
    ),
]

Told = list[tuple[ClusterEvent, object | None, object | None]]


@pytest.fixture
def made() -> Rig:
    return rig()


@pytest.fixture
def told(made: Rig, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What the queue is told."""
    heard: Told = []

    def on_event(event: ClusterEvent, old: object | None, new: object | None, but: str = "") -> None:
        del but
        heard.append((event, old, new))

    monkeypatch.setattr(made.queue, "on_event", on_event)
    return heard


def of_version(shown: StorageObject, version: str) -> Any:
    """The same object in another version."""
    metadata: ObjectMeta = replace(shown.metadata, resource_version=version, generation=int(version))
    return replace(shown, metadata=metadata)


def known(storage: StorageIndex, table: str, shown: StorageObject) -> object:
    """What a table of the index shows of an object."""
    return getattr(storage, table).get(object_key(shown.metadata))


@pytest.mark.parametrize(("first", "other", "table", "resource"), KINDS)
def test_each_change_reaches_index_and_queue(
    made: Rig, told: Told, first: StorageObject, other: StorageObject, table: str, resource: Resource
) -> None:
    """Coming, changing and going are told as such, with the object before and after."""
    storage, feed = made.context.cache.columns.storage, made.scheduler.storage_feed
    feed.added(first)
    assert known(storage, table, first) is first
    feed.updated(first, other)
    assert known(storage, table, first) is other
    feed.deleted(other)
    assert known(storage, table, first) is None
    assert told == [
        (ClusterEvent(resource, Action.ADD), None, first),
        (ClusterEvent(resource, Action.UPDATE_OTHER), first, other),
        (ClusterEvent(resource, Action.DELETE), other, None),
    ]


@pytest.mark.parametrize(("first", "other", "table", "resource"), KINDS)
def test_a_new_version_of_the_same_wakes_nobody(
    made: Rig, told: Told, first: StorageObject, other: StorageObject, table: str, resource: Resource
) -> None:
    """It is taken over, since writes are held against it, but there is nothing in it for a pod."""
    del other, resource
    feed = made.scheduler.storage_feed
    feed.added(first)
    told.clear()
    same = of_version(first, "7")
    feed.updated(first, same)
    assert known(made.context.cache.columns.storage, table, first) is same
    assert told == []


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(volume("v", size="plenty"), id="volume"),
        pytest.param(capacity("r", "s", "plenty", on={}), id="capacity"),
    ],
)
def test_what_cannot_be_read_is_left_out(
    made: Rig, told: Told, caplog: pytest.LogCaptureFixture, bad: StorageObject
) -> None:
    """It is told in the log, wakes nobody, and can go again."""
    feed = made.scheduler.storage_feed
    feed.added(bad)
    storage = made.context.cache.columns.storage
    assert (len(storage.volumes), len(storage.capacities), told) == (0, 0, [])
    assert f"{bad.metadata.name} is left out" in caplog.text
    feed.deleted(bad)
