"""Changes while volume claims are being bound: release, reports, and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ClusterWriteError, ConflictError
from scheduler_core.model.storage import SELECTED_NODE, PersistentVolume, StorageObject
from scheduler_core.scheduler import SchedulerPorts
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, configured, plugin_set, rig
from tests.support.storage import RecordingStorageWriter, claim, mounts, storage_class, volume
from tests.support.tables import table

DRIVER = "disk.example.com"
WEB = pod("web", volumes=mounts("data"))
OTHER = pod("rival", volumes=mounts("other"))
PROVISIONED: tuple[StorageObject, ...] = (claim(), storage_class("local", DRIVER))
STATIC: tuple[StorageObject, ...] = (claim(), claim("other"), storage_class(), volume("pv"))
FAILED = 'running PreBind plugin "VolumeBinding": '


class Stage:
    """A scheduler with VolumeBinding, one node and a pod whose claim is being bound."""

    def __init__(self, storage: tuple[StorageObject, ...], seconds: int = 600) -> None:
        self.writer = RecordingStorageWriter()
        plugins = Plugins(multi_point=plugin_set("VolumeBinding", *BARE))
        self.made: Rig = rig(defaults=plugins, ports=SchedulerPorts(storage=self.writer))
        self.made.serve(_profile(seconds))
        self.feed = self.made.scheduler.storage_feed
        for each in storage:
            self.feed.added(each)
        self.made.add(node("n0"), WEB)

    async def begin(self) -> None:
        """Start the attempt, and run it until it has written a volume or claim."""
        self.task = asyncio.create_task(self.made.attempt())
        await self.made.until(lambda: bool(self.writer.volumes or self.writer.claims))

    async def end(self, seconds: float = 1) -> str:
        """Advance the clock until the attempt ends; return the node to which the pod is bound."""
        self.made.clock.advance(seconds)
        return await self.task

    async def retry(self) -> None:
        """Advance the clock past the backoff, and start the next attempt."""
        self.made.clock.advance(10)
        self.writer.volumes.clear()
        self.writer.claims.clear()
        await self.begin()

    @property
    def current(self) -> PersistentVolume:
        return present(self.made.columns.storage.volumes.current("pv"))

    @property
    def pod_count(self) -> int:
        return int(self.made.columns.pod_count.sum())


def _profile(seconds: int) -> ProfileConfig:
    return configured(DEFAULT_NAME, "VolumeBinding", {"bindTimeoutSeconds": seconds})


def _delete_node(stage: Stage) -> None:
    stage.made.scheduler.feed.node_deleted(node("n0"))


def _delete_claim(stage: Stage) -> None:
    stage.feed.deleted(claim())


def _fail_provisioning(stage: Stage) -> None:
    stage.feed.updated(claim(), claim(annotations={"why": "no room"}, version="9"))


def _change_nothing(stage: Stage) -> None:
    del stage


@table(
    "change, seconds, message",
    ("node-deleted", _delete_node, 1, 'failed to get node "n0": node "n0" not found'),
    (
        "claim-deleted",
        _delete_claim,
        1,
        'failed to check provisioning pvc: persistentvolumeclaims "default/data" not found',
    ),
    ("provisioning-fails", _fail_provisioning, 1, 'provisioning failed for PVC "data"'),
    ("timeout", _change_nothing, 3, "context deadline exceeded"),
)
async def test_a_binding_that_fails(change: Callable[[Stage], None], seconds: int, message: str) -> None:
    """After a failed volume binding the node and the nomination are released, and the pod is retried after backoff."""
    stage = Stage(PROVISIONED, seconds=3)
    made = stage.made
    await stage.begin()
    change(stage)
    for _ in range(seconds - 1):
        made.clock.advance(1)
        for _ in range(5):
            await asyncio.sleep(0)
    assert await stage.end() == ""
    assert (made.condition.reason, made.condition.message) == ("SchedulerError", f"{FAILED}binding volumes: {message}")
    assert [patch.nominated_node_name for patch in made.writer.patches] == ["n0", ""]
    assert (made.place_of(WEB), stage.pod_count, made.writer.attempted) == ("errorBackoff", 0, [])
    made.queue.close()
    assert made.clock.pending == 0


async def test_a_pod_that_is_deleted() -> None:
    """The wait of a deleted pod ends without a report; volumes that were written stay assumed."""
    stage = Stage(STATIC)
    await stage.begin()
    stage.made.scheduler.feed.pod_deleted(WEB)
    assert await stage.end() == ""
    assert (stage.made.place_of(WEB), stage.made.writer.events, stage.pod_count) == ("", [], 0)
    assert stage.current.spec.claim_ref is not None
    stage.feed.updated(volume("pv"), stage.writer.volumes[0])
    assert stage.current is stage.writer.volumes[0]


async def test_failed_provisioning_is_retried_on_another_node() -> None:
    """After failed provisioning the claim has no selected node, so another node is feasible."""
    stage = Stage(PROVISIONED)
    await stage.begin()
    _fail_provisioning(stage)
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


@table("fault", ("conflict", ConflictError("the volume has changed")), ("refused", ClusterWriteError("no answer")))
async def test_a_volume_that_another_claim_took(fault: ClusterWriteError) -> None:
    """After a failed write the volume is no longer assumed, and the next attempt uses another volume."""
    stage = Stage((*STATIC, volume("pv-2", size="20Gi")))
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
    """A volume is not available for a second pod while it is being bound, and is available after a failure."""
    stage = Stage(STATIC)
    made = stage.made
    stage.writer.failures = [ConflictError("changed")]
    attempt = present(made.decide())
    made.add(OTHER)
    assert made.decide() is None
    assert made.place_of(OTHER) == "unschedulable"
    assert made.condition.message == (
        "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind."
    )
    made.scheduler.feed.pod_deleted(WEB)
    assert not await made.scheduler.cycles.binding.bind(attempt)
    stage.feed.updated(volume("pv"), volume("pv", version="6"))
    await stage.begin()
    claim_ref = present(stage.writer.volumes[0].spec.claim_ref)
    assert claim_ref.name == "other"
    stage.task.cancel()
    await asyncio.gather(stage.task, return_exceptions=True)


async def test_a_pod_that_is_preempted_while_its_volume_is_provisioned() -> None:
    """A preempted pod releases its node and is retried, and its claim retains the selected node."""
    stage = Stage(PROVISIONED)
    made = stage.made
    await stage.begin()
    in_pre_bind = present(made.context.services.in_pre_bind.get(WEB.metadata.uid))
    assert in_pre_bind.cancel("preempted by DefaultPreemption")
    assert await stage.task == ""
    assert made.condition.message == f"{FAILED}preempted by DefaultPreemption"
    assert (made.place_of(WEB), stage.pod_count) == ("errorBackoff", 0)
    stage.feed.updated(claim(), stage.writer.claims[0])
    await stage.retry()
    assert [written.metadata.annotations[SELECTED_NODE] for written in stage.writer.claims] == ["n0"]
    stage.task.cancel()
    await asyncio.gather(stage.task, return_exceptions=True)
