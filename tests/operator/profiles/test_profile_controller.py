"""Tests of ProfileController with a real scheduler and an API in memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from bayplan.profiles.profile_controller import ControllerPorts, ProfileController
from bayplan.profiles.profile_rollout import ShadowRollout
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.scheduler_profile import SchedulerProfile

from scheduler_core.errors import NotFoundError, ServerUnavailableError
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.extra_plugins import Counted, CountedArgs, registry_with_extra_plugins
from tests.support.fake_cluster_objects import FakeRevisions, FakeStatuses
from tests.support.injected_errors import raising
from tests.support.manifests import Manifest, most_allocated, plugin_config_manifest, profile_manifest
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

FAIR: Manifest = {"queueSort": {"enabled": [{"name": "FairSort"}], "disabled": [{"name": "*"}]}}
UNKNOWN: Manifest = {"score": {"enabled": [{"name": "Nothing"}]}}
PACK: Manifest = {"pluginConfig": [{"name": "NodeResourcesFit", "args": most_allocated()}]}


@dataclass
class World:
    """API in memory with a sequence of operator processes."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    revisions: FakeRevisions = field(default_factory=FakeRevisions)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    objects: dict[str, Manifest] = field(default_factory=dict)
    version: int = 0

    def __post_init__(self) -> None:
        self._new_process()

    def _new_process(self) -> None:
        self.scheduler = Scheduler(self.clock, self.writer, registry=registry_with_extra_plugins())
        ports = ControllerPorts(self.revisions, self.statuses, self.clock)
        self.controller = ProfileController(self.scheduler, ports)

    async def restart(self) -> None:
        """Start another process, which reads the objects as the application does."""
        self._new_process()
        await self.controller.history.load()
        for manifest in self.objects.values():
            self._show(manifest)
        await self.settle()

    async def apply(self, *manifests: Manifest) -> None:
        """Create or edit objects, and run one step of the controller."""
        for manifest in manifests:
            name = manifest["metadata"]["name"]
            self.version += 1
            old = self.objects.get(name)
            generation = old["metadata"]["generation"] + 1 if old else 1
            metadata = {**manifest["metadata"], "resourceVersion": str(self.version), "generation": generation}
            self.objects[name] = {**manifest, "metadata": metadata}
            self._show(self.objects[name])
        await self.settle()

    async def delete(self, name: str) -> None:
        """Delete an object, and run one step of the controller."""
        gone = self.objects.pop(name)
        kind = SchedulerProfile if gone["kind"] == "SchedulerProfile" else PluginConfig
        self.controller.gone(kind, gone)
        await self.settle()

    async def settle(self) -> None:
        self.controller.reconcile()
        await self.controller.publish()

    def revision(self, scheduler_name: str = "batch") -> str:
        """Return the live revision of a scheduler name, "" if there is none."""
        instance = self.scheduler.context.profiles.get(scheduler_name)
        return "" if instance is None else instance.revision

    def ready(self, name: str = "batch") -> tuple[str, str]:
        condition = self.statuses.condition(name, "Ready")
        return condition["status"], condition["reason"]

    def accepted(self, name: str = "batch") -> str:
        return str(self.statuses.condition(name, "Accepted")["status"])

    def _show(self, manifest: Manifest) -> None:
        kind = SchedulerProfile if manifest["kind"] == "SchedulerProfile" else PluginConfig
        plural, name = kind.definition.plural, manifest["metadata"]["name"]
        self.controller.seen(kind, {**manifest, "status": dict(self.statuses.statuses.get((plural, name), {}))})


@pytest.fixture
async def world() -> World:
    Counted.made = Counted.closed = 0
    Counted.broken = False
    return World()


async def run_until_idle(world: World) -> list[str]:
    """Run the scheduler until it is idle; return the nodes of all pods bound so far."""
    running = asyncio.create_task(world.scheduler.run())
    await world.scheduler.until_idle()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return [binding.node_name for binding in world.writer.bindings]


async def test_a_profile_goes_live(world: World) -> None:
    """An applied profile schedules pods and is reported as live."""
    await world.apply(profile_manifest())
    assert world.revision() == world.statuses.profile("batch")["activeRevision"]
    assert (world.accepted(), world.ready()) == ("True", ("True", "Live"))
    world.scheduler.feed.node_added(node("n1"))
    world.scheduler.feed.pod_added(pod("p", scheduler_name="batch"))
    assert await run_until_idle(world) == ["n1"]


async def test_an_edit_is_another_revision(world: World) -> None:
    """A changed spec creates another live revision."""
    await world.apply(profile_manifest())
    first = world.revision()
    await world.apply(profile_manifest(spec=PACK))
    assert world.revision() not in ("", first)
    assert world.statuses.profile("batch")["observedGeneration"] == 2


async def test_an_equivalent_edit_builds_no_instance(world: World) -> None:
    """An edit that resolves to the same profile builds no instance."""
    spec: Manifest = {"plugins": {"reserve": {"enabled": [{"name": "Counted"}]}}}
    await world.apply(profile_manifest(spec=spec))
    live = world.scheduler.context.profiles.get("batch")
    await world.apply(profile_manifest(spec={**spec, "schedulerName": "batch"}))
    assert world.scheduler.context.profiles.get("batch") is live
    assert (Counted.made, Counted.closed) == (1, 0)


async def test_a_replaced_instance_is_closed(world: World) -> None:
    """A replaced instance is closed, and a repeated reconcile builds no instance."""
    spec: Manifest = {"plugins": {"reserve": {"enabled": [{"name": "Counted"}]}}}
    await world.apply(profile_manifest(spec=spec))
    await world.apply(profile_manifest(spec={**spec, **PACK}))
    await world.settle()
    assert (Counted.made, Counted.closed) == (2, 1)
    await world.delete("batch")
    assert (Counted.made, Counted.closed) == (2, 2)


async def test_an_invalid_edit_leaves_the_last_good_revision_live(world: World) -> None:
    """After an invalid edit the last good revision stays live, and every problem is reported with its path."""
    await world.apply(profile_manifest())
    good = world.revision()
    bad_args: Manifest = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "x"}}}]}
    await world.apply(profile_manifest(spec={**bad_args, "plugins": UNKNOWN, "pluginConfigRefs": [{"name": "none"}]}))
    assert (world.revision(), world.accepted(), world.ready()) == (good, "False", ("True", "LastGoodRevision"))
    message = world.statuses.condition("batch", "Accepted")["message"]
    for path in (
        "spec.plugins.score.enabled[0].name",
        "spec.pluginConfig[0].args.scoringStrategy.type",
        "spec.pluginConfigRefs[0].name",
    ):
        assert path in message
    await world.apply(profile_manifest())
    assert (world.revision(), world.accepted(), world.ready()) == (good, "True", ("True", "Live"))


async def test_an_exception_of_a_plugin_is_a_problem(world: World) -> None:
    """An exception of a plugin's constructor is a problem of the profile, and the last good revision stays live."""
    await world.apply(profile_manifest())
    good = world.revision()
    Counted.broken = True
    await world.apply(profile_manifest(spec={"plugins": {"reserve": {"enabled": [{"name": "Counted"}]}}}))
    assert world.revision() == good
    assert "no licence" in world.statuses.condition("batch", "Accepted")["message"]


async def test_a_plugin_config_edit_reaches_its_profiles(world: World) -> None:
    """An edit of a PluginConfig is a new revision of each profile that refers to it, but an invalid edit is not."""
    refers: Manifest = {"pluginConfigRefs": [{"name": "pack"}]}
    await world.apply(plugin_config_manifest("pack"), profile_manifest("a", refers), profile_manifest("b", refers))
    before = world.revision("a"), world.revision("b")
    await world.apply(plugin_config_manifest("pack", args=most_allocated()))
    after = world.revision("a"), world.revision("b")
    assert before[0] != after[0]
    assert before[1] != after[1]
    await world.apply(plugin_config_manifest("pack", args={"no": 1}))
    assert (world.revision("a"), world.revision("b")) == after
    assert world.accepted("a") == world.accepted("b") == "False"
    await world.delete("pack")
    assert (world.revision("a"), world.ready("a")) == (after[0], ("True", "LastGoodRevision"))


async def test_a_released_name_is_held_by_the_next_claimant(world: World) -> None:
    """When the holder of a scheduler name is deleted, the next claimant schedules."""
    shared: Manifest = {"schedulerName": "shared"}
    await world.apply(profile_manifest("a", shared, age=1), profile_manifest("b", {**shared, **PACK}, age=2))
    first = world.revision("shared")
    assert (world.accepted("a"), world.accepted("b")) == ("True", "False")
    assert world.statuses.condition("b", "Accepted")["reason"] == "SchedulerNameTaken"
    await world.delete("a")
    assert world.revision("shared") not in ("", first)
    assert (world.accepted("b"), world.ready("b")) == ("True", ("True", "Live"))


async def test_a_new_holder_of_a_name_starts_without_counts(world: World) -> None:
    """The next holder of a scheduler name starts without the counts of the previous holder."""
    shared: Manifest = {"schedulerName": "shared"}
    await world.apply(profile_manifest("a", shared, age=1), profile_manifest("b", shared, age=2))
    world.scheduler.feed.node_added(node("n1"))
    world.scheduler.feed.pod_added(pod("p", scheduler_name="shared"))
    assert await run_until_idle(world) == ["n1"]
    await world.delete("a")
    await world.controller.publish(counts_too=True)
    status = world.statuses.statuses["schedulerprofiles", "b"]
    assert (status["scheduledTotal"], status.get("lastScheduledTime")) == (0, None)


async def test_an_older_claim_that_arrives_later_holds_the_name(world: World) -> None:
    """An older claim that arrives later takes the name, and the younger claim gets it back after a deletion."""
    shared: Manifest = {"schedulerName": "shared"}
    await world.apply(profile_manifest("b", {**shared, **PACK}, age=2))
    second = world.revision("shared")
    await world.apply(profile_manifest("a", shared, age=1))
    assert world.revision("shared") not in ("", second)
    assert world.ready("b") == ("False", "NotLive")
    await world.delete("a")
    assert (world.revision("shared"), world.ready("b")) == (second, ("True", "Live"))


async def test_pods_of_a_deleted_profile_stay_pending(world: World) -> None:
    """Pods of a deleted profile stay pending and are scheduled when the profile is created again."""
    await world.apply(profile_manifest())
    await world.delete("batch")
    world.scheduler.feed.node_added(node("n1"))
    world.scheduler.feed.pod_added(pod("p", scheduler_name="batch"))
    assert await run_until_idle(world) == []
    await world.apply(profile_manifest(uid="another"))
    assert await run_until_idle(world) == ["n1"]


async def test_a_queue_sort_change_waits_for_all_profiles(world: World) -> None:
    """A QueueSort change waits until all live profiles have it, and the status names the profiles that differ."""
    await world.apply(profile_manifest("a"), profile_manifest("b"))
    before = world.revision("a")
    await world.apply(profile_manifest("a", {"plugins": FAIR}))
    assert (world.revision("a"), world.ready("a")) == (before, ("True", "WaitingForQueueSort"))
    assert "and b differ" in world.statuses.condition("a", "Ready")["message"]
    await world.apply(profile_manifest("b", {"plugins": FAIR}))
    assert {instance.queue_sort.name for instance in world.scheduler.context.profiles} == {"FairSort"}
    assert world.ready("a") == world.ready("b") == ("True", "Live")


async def test_a_deletion_completes_a_queue_sort_change(world: World) -> None:
    """A QueueSort change goes live when the last profile with another QueueSort is deleted."""
    await world.apply(profile_manifest("a"), profile_manifest("b"))
    await world.apply(profile_manifest("a", {"plugins": FAIR}))
    await world.delete("b")
    assert world.ready("a") == ("True", "Live")
    assert [instance.queue_sort.name for instance in world.scheduler.context.profiles] == ["FairSort"]


async def test_a_superseded_waiting_instance_is_closed(world: World) -> None:
    """An instance that waits for its QueueSort is closed when the spec changes again."""
    reserve: Manifest = {"reserve": {"enabled": [{"name": "Counted"}]}}
    await world.apply(profile_manifest("a"), profile_manifest("b"))
    await world.apply(profile_manifest("a", {"plugins": {**FAIR, **reserve}}))
    assert (Counted.made, Counted.closed) == (1, 0)
    await world.apply(profile_manifest("a"))
    assert (Counted.made, Counted.closed) == (1, 1)


async def test_the_last_good_revision_survives_a_restart(world: World) -> None:
    """A process that starts with an invalid spec runs the newest stored revision."""
    await world.apply(profile_manifest())
    await world.apply(profile_manifest(spec=PACK))
    good = world.revision()
    await world.apply(profile_manifest(spec={"plugins": UNKNOWN}))
    await world.restart()
    assert (world.revision(), world.accepted(), world.ready()) == (good, "False", ("True", "LastGoodRevision"))


async def test_a_stored_revision_that_cannot_be_built_is_skipped(world: World) -> None:
    """A stored revision whose plugin cannot be built is skipped, and an older revision goes live."""
    await world.apply(profile_manifest())
    oldest = world.revision()
    await world.apply(profile_manifest(spec={"plugins": {"reserve": {"enabled": [{"name": "Counted"}]}}}))
    await world.apply(profile_manifest(spec={"plugins": UNKNOWN}))
    Counted.broken = True
    await world.restart()
    assert (world.revision(), world.ready()) == (oldest, ("True", "LastGoodRevision"))


async def test_a_recreated_profile_has_no_stored_revisions(world: World) -> None:
    """A recreated profile does not use the stored revisions of the deleted object with its name."""
    await world.apply(profile_manifest())
    await world.delete("batch")
    await world.apply(profile_manifest(spec={"plugins": UNKNOWN}, uid="another"))
    await world.restart()
    assert (world.revision(), world.ready()) == ("", ("False", "NotLive"))


async def test_a_profile_without_its_name_does_not_run_a_stored_revision(world: World) -> None:
    """A stored revision does not run under a name that another profile holds."""
    shared: Manifest = {"schedulerName": "shared"}
    await world.apply(profile_manifest("b", {**shared, **PACK}, age=2))
    live = world.revision("shared")
    await world.apply(profile_manifest("a", shared, age=1))
    await world.restart()
    assert world.revision("shared") not in ("", live)
    assert world.ready("b") == ("False", "NotLive")


async def test_a_restart_changes_no_condition(world: World) -> None:
    """After a restart the same objects have the same status, and nothing is written."""
    await world.apply(profile_manifest(), profile_manifest("b", {"plugins": UNKNOWN}))
    world.statuses.patches.clear()
    world.clock.advance(3600)
    await world.restart()
    assert world.statuses.patches == []
    assert len(world.revisions.stored) == 1


async def test_repeated_reconciles_write_nothing(world: World) -> None:
    """Repeated lists and reconciles of unchanged objects write no status and record no event."""
    await world.apply(profile_manifest(), profile_manifest("b", {"plugins": UNKNOWN}), plugin_config_manifest("pack"))
    reasons = [event.reason for event in world.writer.events]
    assert sorted(reasons) == ["Accepted", "Activated", "Rejected", "Valid"]
    world.statuses.patches.clear()
    for _ in range(20):
        world.clock.advance(60)
        profiles = [each for each in world.objects.values() if each["kind"] == "SchedulerProfile"]
        world.controller.listed(SchedulerProfile, profiles, str(world.version))
        await world.settle()
    assert world.statuses.patches == []
    assert len(world.writer.events) == len(reasons)


async def test_a_rejected_spec_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Each process logs a rejected spec once with every problem, and again when the problems change."""
    await world.apply(profile_manifest("b", {"plugins": UNKNOWN}))
    await world.settle()
    assert [line.message.count('there is no plugin "Nothing"') for line in caplog.records] == [1]
    await world.restart()
    await world.apply(profile_manifest("b", {"schedulerName": "default-scheduler"}))
    assert len(caplog.records) == 3
    assert "--allow-default-scheduler" in caplog.records[-1].message


async def test_counts_are_written_every_ten_seconds_at_most(world: World) -> None:
    """A change of counts waits for ten seconds after the last write; a change of conditions does not wait."""
    await world.apply(profile_manifest())

    async def pending_after(seconds: float, name: str) -> int:
        world.clock.advance(seconds)
        world.scheduler.feed.pod_added(pod(name, scheduler_name="batch"))
        await world.controller.publish()
        return int(world.statuses.profile("batch")["pending"])

    assert await pending_after(0, "p1") == 1
    assert await pending_after(9, "p2") == 1
    assert await pending_after(1, "p3") == 3
    assert await pending_after(1, "p4") == 3
    await world.apply(profile_manifest(spec=PACK))
    assert world.statuses.profile("batch")["pending"] == 4


async def test_the_last_counts_are_written_at_the_end(world: World) -> None:
    """A process writes the last counts when it stops."""
    await world.apply(profile_manifest())
    for name in ("p1", "p2"):
        world.scheduler.feed.pod_added(pod(name, scheduler_name="batch"))
        await world.controller.publish(counts_too=name == "p2")
    assert world.statuses.profile("batch")["pending"] == 2


async def test_a_deleted_object_is_no_failure(world: World) -> None:
    """The status of a deleted profile is dropped without an error."""
    world.statuses.failures.append(NotFoundError("gone"))
    await world.apply(profile_manifest())
    assert world.statuses.patches == []


async def test_writes_are_retried_until_they_succeed(world: World) -> None:
    """A profile is live while the API server is unavailable, and its statuses and revisions are written later."""
    world.statuses.failures += [ServerUnavailableError("away")] * 2
    world.revisions.failures.append(ServerUnavailableError("away"))
    running = asyncio.create_task(world.controller.run())
    world.controller.seen(SchedulerProfile, profile_manifest())
    async with asyncio.timeout(60):
        while not (world.statuses.patches and world.revisions.stored):
            await asyncio.sleep(0)
            world.clock.advance(0.1)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert world.ready() == ("True", "Live")


async def test_a_revision_is_stored_if_shadows_raise(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revision that went live in a reconcile that raised later is stored by the next one."""
    errors: list[BaseException] = [MemoryError()]
    monkeypatch.setattr(ShadowRollout, "apply", raising(errors, ShadowRollout.apply))
    with pytest.raises(MemoryError):
        await world.apply(profile_manifest())
    await world.settle()
    uid = world.objects["batch"]["metadata"]["uid"]
    assert [config.revision() for config in world.controller.history.last_good(uid)] == [world.revision()]


COUNTED: Manifest = {"plugins": {"reserve": {"enabled": [{"name": "Counted"}]}}}


@table(
    "before, after",
    ("new profiles", [], ["a", "b"]),
    ("an edited one and a new one", ["a"], ["a", "b"]),
    ("a withdrawn one", ["a", "b"], ["b"]),
)
@pytest.mark.parametrize("faults", [1, 2])
async def test_a_swap_that_raises_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch, before: list[str], after: list[str], faults: int
) -> None:
    """The last good revisions stay live, also if undoing raises; then every revision goes live, and is stored, once."""
    await world.apply(*(profile_manifest(name, COUNTED) for name in before))
    good = [world.revision(name) for name in ("a", "b")]
    errors: list[BaseException] = [MemoryError() for _ in range(faults)]
    monkeypatch.setattr(SchedulingQueue, "profile_changed", raising(errors, SchedulingQueue.profile_changed))
    edits = [profile_manifest(name, {**COUNTED, **PACK}) for name in after]
    with pytest.raises(MemoryError):
        await (world.apply(*edits) if len(after) > len(before) else world.delete("a"))
    assert [world.revision(name) for name in ("a", "b")] == good
    assert Counted.closed == 0
    world.scheduler.feed.node_added(node("n1"))
    for name in ("a", "b"):
        world.scheduler.feed.pod_added(pod(name, scheduler_name=name))
    await world.settle()
    assert [name for name in ("a", "b") if world.revision(name)] == after
    assert Counted.made - Counted.closed == len(after)
    for name in after:
        uid = world.objects[name]["metadata"]["uid"]
        assert world.revision(name) in [config.revision() for config in world.controller.history.last_good(uid)]
    assert len(await run_until_idle(world)) == len(after)


REFERS: Manifest = {**COUNTED, "pluginConfigRefs": [{"name": "shared"}]}
INLINE: Manifest = {**COUNTED, "pluginConfig": [{"name": "Counted", "args": {"size": 3}}]}


def shared(size: object) -> Manifest:
    return plugin_config_manifest("shared", "Counted", {"size": size})


EDITS = [
    (shared(1), 1),
    (profile_manifest("a", REFERS), 0),
    (profile_manifest("b", REFERS), 0),
    (shared(2), 1),
    (profile_manifest("a", {**REFERS, "percentageOfNodesToScore": 50}), 0),
    (profile_manifest("c", INLINE), 1),
    (shared("x"), 1),
    (profile_manifest("d", COUNTED), 0),
    (shared(2.0), 1),  # equal to 2 in Python, but not an integer
    (shared(2), 1),
]
"""Consecutive edits, each with the number of validations of args that it causes."""


def test_args_are_validated_once_per_edit() -> None:
    """Args are validated once for each change, however many profiles refer to them."""
    clock = VirtualClock()
    Counted.broken = False
    scheduler = Scheduler(clock, RecordingWriter(), registry=registry_with_extra_plugins())
    controller = ProfileController(scheduler, ControllerPorts(FakeRevisions(), FakeStatuses(), clock))
    counts = []
    for version, (manifest, _) in enumerate(EDITS, 1):
        kind = SchedulerProfile if manifest["kind"] == "SchedulerProfile" else PluginConfig
        metadata = {**manifest["metadata"], "resourceVersion": str(version), "generation": version}
        before = CountedArgs.validations
        controller.seen(kind, {**manifest, "metadata": metadata})
        controller.reconcile()
        counts.append(CountedArgs.validations - before)
    assert counts == [expected for _, expected in EDITS]
    live = [instance.plugins["Counted"] for instance in scheduler.context.profiles]
    assert sorted(plugin.size for plugin in live if isinstance(plugin, Counted)) == [0, 2, 2, 3]
