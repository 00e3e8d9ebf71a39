"""Claims that are being bound while something changes: releases, reports, and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ClusterWriteError, ConflictError
from scheduler_core.model.storage import SELECTED_NODE, PersistentVolume, StorageObject
from scheduler_core.scheduler import SchedulerPorts
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, configured, plugin_set, rig
from tests.support.storage import RecordingStorageWriter, claim, mounts, storage_class, volume

DRIVER = "disk.example.com"
WEB = pod("web", volumes=mounts("data"))
RIVAL = pod("rival", volumes=mounts("other"))
MADE: tuple[StorageObject, ...] = (claim(), storage_class("local", DRIVER))
FOUND: tuple[StorageObject, ...] = (claim(), claim("other"), storage_class(), volume("pv"))
FAILED = 'running PreBind plugin "VolumeBinding": '


class Stage:
    """A scheduler with VolumeBinding, one node and a pod whose claim is being bound."""

    def __init__(self, storage: tuple[StorageObject, ...], seconds: int = 600) -> None:
        self.writer = RecordingStorageWriter()
        plugins = Plugins(multi_point=plugin_set("VolumeBinding", *BARE))
        self.made: Rig = rig(defaults=plugins, ports=SchedulerPorts(storage=self.writer))
        self.made.serve(_profile(seconds))
        self.feed = self.made.scheduler.storage_feed
        for shown in storage:
            self.feed.added(shown)
        self.made.add(node("n0"), WEB)

    async def begin(self) -> None:
        """Run to the wait for the binding."""
        self.task = asyncio.create_task(self.made.attempt())
        await self.made.until(lambda: bool(self.writer.volumes or self.writer.claims))

    async def end(self, seconds: float = 1) -> str:
        """Let time pass until the attempt ends; return the node to which the pod was bound."""
        self.made.clock.advance(seconds)
        return await self.task

    async def retry(self) -> None:
        """Let the backoff pass and try again."""
        self.made.clock.advance(10)
        self.writer.volumes.clear()
        self.writer.claims.clear()
        await self.begin()

    @property
    def current(self) -> PersistentVolume:
        shown = self.made.context.cache.columns.storage.volumes.current("pv")
        assert shown is not None
        return shown

    @property
    def held(self) -> int:
        return int(self.made.context.cache.columns.pod_count.sum())


def _profile(seconds: int) -> ProfileConfig:
    return configured(DEFAULT_NAME, "VolumeBinding", {"bindTimeoutSeconds": seconds})


def _node_goes(stage: Stage) -> None:
    stage.made.scheduler.feed.node_deleted(node("n0"))


def _claim_goes(stage: Stage) -> None:
    stage.feed.deleted(claim())


def _provisioning_fails(stage: Stage) -> None:
    stage.feed.updated(claim(), claim(annotations={"why": "no room"}, version="9"))


def _nothing(stage: Stage) -> None:
    del stage


@pytest.mark.parametrize(
    ("happens", "seconds", "message"),
    [
        pytest.param(_node_goes, 1, 'failed to get node "n0": node "n0" not found', id="node-deleted"),
        pytest.param(
            _claim_goes,
            1,
            'failed to check provisioning pvc: persistentvolumeclaims "default/data" not found',
            id="claim-deleted",
        ),
        pytest.param(_provisioning_fails, 1, 'provisioning failed for PVC "data"', id="provisioning-fails"),
        pytest.param(_nothing, 3, "context deadline exceeded", id="takes-too-long"),
    ],
)
async def test_a_binding_that_fails(happens: Callable[[Stage], None], seconds: int, message: str) -> None:
    """It is an error: the node is released, the nomination is cleared, and the pod is retried after backoff."""
    stage = Stage(MADE, seconds=3)
    made = stage.made
    await stage.begin()
    happens(stage)
    for _ in range(seconds - 1):
        made.clock.advance(1)
        for _ in range(5):
            await asyncio.sleep(0)
    assert await stage.end() == ""
    assert (made.condition.reason, made.condition.message) == (
        "SchedulerError",
        f"{FAILED}binding volumes: {message}",
    )
    assert [patch.nominated_node_name for patch in made.writer.patches] == ["n0", ""]
    assert (made.place_of(WEB), stage.held, made.writer.attempted) == ("errorBackoff", 0, [])
    made.queue.close()
    assert made.clock.pending == 0


async def test_a_pod_that_is_deleted() -> None:
    """The wait ends at the next check, and nothing is reported; written changes stay, as in the API server."""
    stage = Stage(FOUND)
    await stage.begin()
    stage.made.scheduler.feed.pod_deleted(WEB)
    assert await stage.end() == ""
    assert (stage.made.place_of(WEB), stage.made.writer.events, stage.held) == ("", [], 0)
    assert stage.current.spec.claim_ref is not None
    stage.feed.updated(volume("pv"), stage.writer.volumes[0])
    assert stage.current is stage.writer.volumes[0]


async def test_provisioning_that_failed_is_tried_on_another_node() -> None:
    """The provisioner has cleared its node, so the claim can use another one."""
    stage = Stage(MADE)
    await stage.begin()
    _provisioning_fails(stage)
    assert await stage.end() == ""
    stage.made.scheduler.feed.node_deleted(node("n0"))
    stage.made.add(node("n1"))
    await stage.retry()
    (selected,) = stage.writer.claims
    assert selected.metadata.annotations[SELECTED_NODE] == "n1"
    stage.feed.added(volume("pv-1", claim_ref=selected))
    bound = claim(volume="pv-1", annotations={SELECTED_NODE: "n1"}, version="20")
    stage.feed.updated(claim(version="9"), bound)
    assert await stage.end() == "n1"
    stage.made.queue.close()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(ConflictError("the volume has changed"), id="conflict"),
        pytest.param(ClusterWriteError("no answer"), id="refused"),
    ],
)
async def test_a_volume_that_somebody_else_was_faster_to_take(fault: ClusterWriteError) -> None:
    """An unwritten binding is not assumed any more; the next attempt sees the volume's claim and uses another one."""
    stage = Stage((*FOUND, volume("pv-2", size="20Gi")))
    stage.writer.failures = [fault]
    assert await stage.made.attempt() == ""
    assert stage.made.condition.message == f"{FAILED}{fault}"
    assert stage.current == volume("pv")
    stage.feed.updated(volume("pv"), volume("pv", claim_ref="default/somebody", version="5"))
    await stage.retry()
    assert [written.metadata.name for written in stage.writer.volumes] == ["pv-2"]
    stage.task.cancel()
    await asyncio.gather(stage.task, return_exceptions=True)
    stage.made.queue.close()


async def test_two_pods_that_want_one_volume() -> None:
    """The second is scheduled while the first is being bound, and gets the volume if that fails."""
    stage = Stage(FOUND)
    made = stage.made
    stage.writer.failures = [ConflictError("changed")]
    attempt = made.decide()
    assert attempt is not None
    made.add(RIVAL)
    assert made.decide() is None
    assert made.place_of(RIVAL) == "unschedulable"
    assert made.condition.message == (
        "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    )
    made.scheduler.feed.pod_deleted(WEB)
    assert not await made.scheduler.cycles.binding.bind(attempt)
    stage.feed.updated(volume("pv"), volume("pv", version="6"))
    await stage.begin()
    pointer = stage.writer.volumes[0].spec.claim_ref
    assert pointer is not None
    assert pointer.name == "other"
    stage.task.cancel()
    await asyncio.gather(stage.task, return_exceptions=True)
    made.queue.close()


async def test_a_pod_that_is_preempted_while_its_volume_is_made() -> None:
    """It stops waiting, releases its node and is retried; the claim keeps its selected node."""
    stage = Stage(MADE)
    made = stage.made
    await stage.begin()
    held = made.context.services.in_pre_bind.get(WEB.metadata.uid)
    assert held is not None
    assert held.cancel("preempted by DefaultPreemption")
    assert await stage.task == ""
    assert made.condition.message == f"{FAILED}preempted by DefaultPreemption"
    assert (made.place_of(WEB), stage.held) == ("errorBackoff", 0)
    stage.feed.updated(claim(), stage.writer.claims[0])
    await stage.retry()
    assert [written.metadata.annotations[SELECTED_NODE] for written in stage.writer.claims] == ["n0"]
    stage.task.cancel()
    await asyncio.gather(stage.task, return_exceptions=True)
    made.queue.close()
