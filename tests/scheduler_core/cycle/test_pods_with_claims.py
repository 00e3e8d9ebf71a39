"""Pods with volume claims: the storage events that requeue them, and the binding of their claims."""

from __future__ import annotations

import asyncio

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.model.storage import SELECTED_NODE, StorageObject
from scheduler_core.scheduler import SchedulerPorts
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, Rig, plugin_set, rig
from tests.support.storage import (
    RecordingStorageWriter,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    mounts,
    storage_class,
    volume,
)
from tests.support.tables import table

STORAGE_PLUGINS = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
WEB = pod("web", volumes=mounts("data"))
DRIVER = "disk.example.com"
REQUEUED = ("backoff", "active")


def world(*storage: StorageObject, writer: RecordingStorageWriter | None = None) -> Rig:
    """Return a scheduler with the storage plugins, one node and one pod with a claim."""
    plugins = Plugins(multi_point=plugin_set(*STORAGE_PLUGINS, *BARE))
    made = rig(defaults=plugins, ports=SchedulerPorts(storage=writer))
    for each in storage:
        made.scheduler.storage_feed.added(each)
    made.add(node("n0"), WEB)
    return made


@table(
    "before, event",
    ("claim-is-created", [], claim(volume="pv")),
    ("volume-is-created", [claim(volume="pv")], volume("pv")),
    ("storage-class-is-created", [claim(storage_class="late")], storage_class("late", DRIVER)),
    (
        "capacity-is-created",
        [claim(), storage_class("local", DRIVER), csi_driver(DRIVER)],
        capacity("c", "local", "9Gi", on={}),
    ),
)
def test_event_that_requeues_the_pod(before: list[StorageObject], event: StorageObject) -> None:
    """A storage event that may help requeues the pod."""
    made = world(*before)
    assert made.decide() is None
    assert made.place_of(WEB) == "unschedulable"
    made.scheduler.storage_feed.added(event)
    assert made.place_of(WEB) in REQUEUED


@table(
    "event",
    ("claim-of-another-pod", claim("other")),
    ("attachment", attachment("va", DRIVER, "n0", None)),
    ("driver", csi_driver(DRIVER)),
)
def test_event_that_does_not_requeue_the_pod(event: StorageObject) -> None:
    """A storage event that cannot help leaves the pod unschedulable."""
    made = world()
    assert made.decide() is None
    made.scheduler.storage_feed.added(event)
    assert made.place_of(WEB) == "unschedulable"


def test_deleted_attachment_requeues_the_pod() -> None:
    """A deleted attachment on a node at its attachment limit requeues the pod."""
    made = world(claim(volume="pv"), volume("pv", csi=(DRIVER, "h")), volume("old", csi=(DRIVER, "o")))
    feed = made.scheduler.storage_feed
    feed.added(csi_node("n0", {DRIVER: 1}))
    feed.added(attachment("va", DRIVER, "n0", "old"))
    assert made.decide() is None
    assert made.condition.message == "0/1 nodes are available: 1 node(s) exceed max volume count."
    feed.deleted(attachment("va", DRIVER, "n0", "old"))
    assert made.place_of(WEB) in REQUEUED


async def test_pod_is_bound_after_its_claim() -> None:
    """The pod is bound after the provisioner has created the volume for the selected node."""
    writer = RecordingStorageWriter()
    made = world(claim(), storage_class("local", DRIVER), writer=writer)
    attempt = asyncio.create_task(made.attempt())
    await made.until(lambda: bool(writer.claims))
    assert made.bound == {}
    selected = writer.claims[0]
    assert selected.metadata.annotations == {SELECTED_NODE: "n0"}
    feed = made.scheduler.storage_feed
    feed.added(volume("pv-1", claim_ref=selected))
    feed.updated(claim(), claim(volume="pv-1", annotations={SELECTED_NODE: "n0"}, version="9"))
    await made.until(lambda: made.clock.pending > 0)
    made.clock.advance(1)
    assert await attempt == "n0"
    assert made.bound == {"web": "n0"}
