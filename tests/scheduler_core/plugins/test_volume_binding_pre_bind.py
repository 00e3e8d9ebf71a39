"""VolumeBinding at Reserve, PreBind and Unreserve: volumes are assumed, bound, waited for, and released on failure."""

import asyncio
from collections.abc import Callable

import msgspec

from scheduler_core.config.plugin_args import VolumeBindingArgs
from scheduler_core.errors import ClusterWriteError, ConflictError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import AwsElasticBlockStore
from scheduler_core.model.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimPointer,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageObject,
)
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.storage import (
    RecordingStorageWriter,
    claim,
    columns_with_storage,
    csi_node,
    mounts,
    storage_class,
    volume,
)
from tests.support.tables import table

POINTER = ClaimPointer("default", "want", "uid-of-default-want")
STATIC = (claim("want"), storage_class(), volume("pv", on={"zone": ["z"]}))
DYNAMIC = (claim("made", storage_class="fast"), storage_class("fast", "disk.example.com"))


class World:
    """A pod with claims that is scheduled to node ``n``."""

    def __init__(self, storage: tuple[StorageObject, ...], *claims: str, timeout: int = 600) -> None:
        self.nodes: NodeColumns = columns_with_storage([node("n", labels={"zone": "z"}), node("other")], storage)
        self.writer = RecordingStorageWriter()
        self.handle = FakeHandle(nodes=self.nodes, storage_writer=self.writer)
        self.plugin = VolumeBinding(VolumeBindingArgs(bind_timeout_seconds=timeout), self.handle)
        self.state = CycleState()
        self.info: PodInfo = self.nodes.compile_pod(pod(volumes=mounts(*claims)))

    def decide(self) -> Status:
        """Run the extension points up to Reserve."""
        status = self.plugin.pre_filter(self.state, self.info, self.nodes).status
        if not status.is_skip:
            assert status.is_success
            self.plugin.filter(self.state, self.info, self.nodes, ALL_ROWS)
        self.nodes.add_pod(self.info, 0)
        return self.plugin.reserve(self.state, self.info, "n")

    def start(self) -> asyncio.Task[Status]:
        """Start PreBind as a task."""
        return asyncio.create_task(self.pre_bind())

    async def pre_bind(self) -> Status:
        return await self.plugin.pre_bind(self.state, self.info, "n")

    async def tick(self, seconds: float = 1.0) -> None:
        """Let tasks run to their next sleep, and advance the clock."""
        for _ in range(5):
            await asyncio.sleep(0)
        self.handle.clock.advance(seconds)
        for _ in range(5):
            await asyncio.sleep(0)

    def report_written(self) -> None:
        """Report the written objects and the controller's binding, as the watch does."""
        for written in self.writer.volumes:
            self.nodes.storage.assign(written)
        for selected in self.writer.claims:
            self.nodes.storage.assign(volume(f"pv-of-{selected.metadata.name}", claim_ref=selected))
            self.nodes.storage.assign(fully_bound(selected, f"pv-of-{selected.metadata.name}"))


def fully_bound(stored: PersistentVolumeClaim, to: str) -> PersistentVolumeClaim:
    metadata: AnnotatedMeta = msgspec.structs.replace(
        stored.metadata, annotations=stored.metadata.annotations | {BIND_COMPLETED: "yes"}, resource_version="9"
    )
    return msgspec.structs.replace(stored, metadata=metadata, spec=msgspec.structs.replace(stored.spec, volume_name=to))


def current(world: World) -> PersistentVolume:
    return present(world.nodes.storage.volumes.current("pv"))


# -- Reserve --------------------------------------------------------------------------------------------------------


def test_reserve_assumes_the_volume() -> None:
    """An assumed volume is not available to other pods; the stored object is unchanged."""
    world = World(STATIC, "want")
    assert world.decide() == SUCCESS
    assert current(world).spec.claim_ref == POINTER
    assert current(world).metadata.annotations == {BOUND_BY_CONTROLLER: "yes"}
    rival = world.nodes.compile_pod(pod("rival", volumes=mounts("rivals")))
    world.nodes.storage.assign(claim("rivals"))
    state = CycleState()
    world.plugin.pre_filter(state, rival, world.nodes)
    codes = present(world.plugin.filter(state, rival, world.nodes, ALL_ROWS))
    assert codes.all()
    assert world.nodes.storage.volumes.get("pv") == STATIC[2]


def test_reserve_uses_the_smallest_volume() -> None:
    """The smallest volume of sufficient size is reserved."""
    world = World(
        (claim("want"), storage_class(), volume("c", size="9Gi"), volume("b", size="5Gi"), volume("a", size="9Gi")),
        "want",
    )
    world.decide()
    assert [known.volume.metadata.name for known in world.nodes.storage.volumes_reserved_for(claim("want"))] == ["b"]


def test_volume_that_the_user_bound_is_not_marked() -> None:
    """Without the annotation, the controller cannot undo the user's binding; a missing UID is filled in."""
    world = World((claim("want"), storage_class(), volume("pv", claim_ref="default/want")), "want")
    world.decide()
    assert current(world).spec.claim_ref == POINTER
    assert current(world).metadata.annotations == {}


def test_reserve_selects_the_node_of_a_new_volume() -> None:
    """The claim is assumed with the selected-node annotation."""
    world = World(DYNAMIC, "made")
    assert world.decide() == SUCCESS
    made = present(world.nodes.storage.claims.current("default/made"))
    assert made.metadata.annotations == {SELECTED_NODE: "n"}


def test_unreserve_restores_volumes_and_claims() -> None:
    """Unreserve can be called repeatedly, and before Reserve."""
    world = World((*STATIC, *DYNAMIC), "want", "made")
    world.plugin.unreserve(world.state, world.info, "n")
    world.decide()
    for _ in range(2):
        world.plugin.unreserve(world.state, world.info, "n")
    assert current(world) == STATIC[2]
    assert world.nodes.storage.claims.current("default/made") == DYNAMIC[0]


def test_failed_reserve_restores_assumed_volumes() -> None:
    """If a claim changed after Filter, Reserve fails and restores the volumes that it assumed."""
    world = World((*STATIC, *DYNAMIC), "want", "made")
    world.plugin.pre_filter(world.state, world.info, world.nodes)
    world.plugin.filter(world.state, world.info, world.nodes, ALL_ROWS)
    world.nodes.storage.assign(claim("made", storage_class="fast", version="2"))
    status = world.plugin.reserve(world.state, world.info, "n")
    assert status == Status(Code.ERROR, ('"default/made" is out of sync (stored: 2, assume: 1)',))
    assert current(world) == STATIC[2]


@table("storage, claims", ("no-claims", (), ()), ("bound", (claim("want", volume="pv"), volume("pv")), ("want",)))
async def test_nothing_to_bind(storage: tuple[StorageObject, ...], claims: tuple[str, ...]) -> None:
    """PreBind is skipped if the pod has no unbound claims."""
    world = World(storage, *claims)
    assert world.decide() == SUCCESS
    assert world.plugin.pre_bind_pre_flight(world.state, world.info, "n").is_skip
    assert await world.pre_bind() == SUCCESS
    assert world.writer.volumes == []


def test_pre_flight_without_reserve() -> None:
    """Without Reserve, PreBindPreFlight returns kube-scheduler's error."""
    world = World(STATIC, "want")
    world.plugin.pre_filter(world.state, world.info, world.nodes)
    expected = Status(Code.ERROR, ('no pod volume found for node "n"',))
    assert world.plugin.pre_bind_pre_flight(world.state, world.info, "n") == expected


# -- PreBind --------------------------------------------------------------------------------------------------------


async def test_binding_is_written_and_waited_for() -> None:
    """PreBind ends at the first check after the claims are bound."""
    world = World((*STATIC, *DYNAMIC), "want", "made")
    world.decide()
    assert world.plugin.pre_bind_pre_flight(world.state, world.info, "n") == SUCCESS
    task = world.start()
    await world.tick()
    assert [written.spec.claim_ref for written in world.writer.volumes] == [POINTER]
    assert [written.metadata.annotations for written in world.writer.claims] == [{SELECTED_NODE: "n"}]
    world.report_written()
    await world.tick()
    assert not task.done()
    world.nodes.storage.assign(fully_bound(claim("want"), "pv"))
    await world.tick()
    assert await task == SUCCESS


async def test_binding_timeout() -> None:
    """PreBind fails after the profile's bindTimeoutSeconds."""
    world = World(STATIC, "want", timeout=3)
    world.decide()
    task = world.start()
    for _ in range(3):
        await world.tick()
    assert await task == Status(Code.ERROR, ("binding volumes: context deadline exceeded",))


async def test_without_a_writer() -> None:
    """Without write access, PreBind returns an error that states the correction."""
    world = World(STATIC, "want")
    world.handle.storage_writer = None
    world.decide()
    status = await world.pre_bind()
    assert status.code is Code.ERROR
    assert "run the scheduler with write access to persistent volumes" in status.message


async def test_failed_write_restores_unwritten_objects() -> None:
    """Written objects remain assumed until the watch reports them; unwritten ones are restored."""
    world = World((*STATIC, *DYNAMIC), "want", "made")
    world.decide()
    world.writer.failures = [None, ConflictError("the claim has changed")]
    assert await world.pre_bind() == Status(Code.ERROR, ("the claim has changed",))
    world.plugin.unreserve(world.state, world.info, "n")
    assert current(world).spec.claim_ref == POINTER
    assert world.nodes.storage.claims.current("default/made") == DYNAMIC[0]


async def test_first_write_fails() -> None:
    """If the first write fails, the volume is restored."""
    world = World(STATIC, "want")
    world.decide()
    world.writer.failures = [ClusterWriteError("no")]
    assert await world.pre_bind() == Status(Code.ERROR, ("no",))
    assert current(world) == STATIC[2]


def _unbind(world: World) -> None:
    written = world.writer.volumes[0]
    world.nodes.storage.assign(
        msgspec.structs.replace(written, spec=msgspec.structs.replace(written.spec, claim_ref=None))
    )


def _relabel(world: World) -> None:
    world.report_written()
    world.nodes.update_node(node("n"))


def _migrate(world: World) -> None:
    """Migrate the volume's plugin: its affinity then requires a label that the node lacks."""
    written = world.writer.volumes[0]
    spec = msgspec.structs.replace(written.spec, aws=AwsElasticBlockStore("vol-1"), node_affinity=None)
    labels = {"topology.kubernetes.io/zone": "z"}
    metadata = msgspec.structs.replace(written.metadata, labels=labels)
    world.nodes.storage.assign(csi_node("n", migrated="kubernetes.io/aws-ebs"))
    world.nodes.storage.assign(msgspec.structs.replace(written, spec=spec, metadata=metadata))


@table(
    "change, reason",
    ("node-deleted", lambda world: world.nodes.remove_node("n"), 'failed to get node "n": node "n" not found'),
    (
        "pod-deleted",
        lambda world: world.nodes.remove_pod(world.info),
        'pod does not exist any more: pod "pod" not found',
    ),
    (
        "volume-deleted",
        lambda world: world.nodes.storage.remove(volume("pv")),
        'failed to check binding: persistentvolumes "pv" not found',
    ),
    (
        "claim-deleted",
        lambda world: world.nodes.storage.remove(claim("want")),
        'failed to check binding: persistentvolumeclaims "default/want" not found',
    ),
    ("unbound-again", _unbind, 'ClaimRef got reset for pv "pv"'),
    ("node-out-of-reach", _relabel, 'pv "pv" node affinity doesn\'t match node "n": no matching NodeSelectorTerms'),
    (
        "node-out-of-reach-after-migration",
        _migrate,
        'pv "pv" node affinity doesn\'t match node "n": no matching NodeSelectorTerms',
    ),
)
async def test_binding_of_an_existing_volume_fails(change: Callable[[World], object], reason: str) -> None:
    """PreBind fails if an object is deleted or changed during the wait."""
    await _fails(World(STATIC, "want"), change, reason)


async def _fails(world: World, change: Callable[[World], object], reason: str) -> None:
    world.decide()
    task = world.start()
    await world.tick(0.5)
    change(world)
    await world.tick()
    assert await task == Status(Code.ERROR, (f"binding volumes: {reason}",))


def _report_claim(annotations: dict[str, str]) -> Callable[[World], object]:
    return lambda world: world.nodes.storage.assign(
        claim("made", storage_class="fast", annotations=annotations, version="3")
    )


@table(
    "change, reason",
    (
        "claim-deleted",
        lambda world: world.nodes.storage.remove(claim("made")),
        'failed to check provisioning pvc: persistentvolumeclaims "default/made" not found',
    ),
    ("no-annotations", _report_claim({}), 'selectedNode annotation reset for PVC "made"'),
    ("node-annotation-removed", _report_claim({"x": "y"}), 'provisioning failed for PVC "made"'),
    ("another-node", _report_claim({SELECTED_NODE: "m"}), 'provisioning failed for PVC "made"'),
)
async def test_provisioning_fails(change: Callable[[World], object], reason: str) -> None:
    """PreBind fails if the claim is deleted or the provisioner changes the selected-node annotation."""
    await _fails(World(DYNAMIC, "made"), change, reason)


async def test_provisioned_volume_out_of_reach() -> None:
    """PreBind waits until the watch reports the volume, and fails if the node cannot reach it."""
    world = World(DYNAMIC, "made")
    world.decide()
    task = world.start()
    await world.tick()
    world.nodes.storage.assign(fully_bound(world.writer.claims[0], "new"))
    await world.tick()
    assert not task.done()
    world.nodes.storage.assign(volume("new", on={"zone": ["elsewhere"]}))
    await world.tick()
    reason = 'pv "new" node affinity doesn\'t match node "n": no matching NodeSelectorTerms'
    assert await task == Status(Code.ERROR, (f"binding volumes: {reason}",))


async def test_a_lagging_watch_is_not_a_failure() -> None:
    """A claim without the annotation is not a failure if its version is older than the write."""
    world = World(DYNAMIC, "made", timeout=5)
    world.decide()
    task = world.start()
    await world.tick(2)
    assert not task.done()
    world.report_written()
    await world.tick()
    assert await task == SUCCESS
