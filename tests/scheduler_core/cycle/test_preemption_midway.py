"""Preemptions with concurrent changes, or with victims that do not run yet."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import Plugins, PluginSet
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.preemption import DeferringWriter
from tests.support.scheduling import places_of
from tests.support.virtual_clock import VirtualClock

HIGH = pod("high", requests={"cpu": "4"}, priority=10)
LOW = pod("low", requests={"cpu": "4"}, priority=1)
VICTIMS = [pod(f"v{index}", node_name="n", requests={"cpu": "2"}, priority=1 - index) for index in range(2)]


class Stage:
    """The default profile with a gate in the binding cycle, and one node."""

    def __init__(self, *pods: Pod) -> None:
        self.clock, self.writer = VirtualClock(), DeferringWriter()
        registry = in_tree_registry()
        registry.register(Gate)
        built_in = default_plugins().multi_point.enabled
        defaults = Plugins(multi_point=PluginSet(enabled=(PluginEntry(name="Gate"), *built_in)))
        self.scheduler = Scheduler(self.clock, self.writer, registry=registry, defaults=defaults)
        self.context = self.scheduler.context
        Gate.shut("")
        self.serve()
        self.scheduler.feed.node_added(node("n"))
        for each in pods:
            self.scheduler.feed.pod_added(each)

    def serve(self) -> None:
        """Make a new revision of the profile live."""
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])

    async def attempt(self) -> asyncio.Task[bool] | None:
        """Try the next pod; return its binding cycle at its first wait, None without a node."""
        queued = self.context.queue.pop()
        assert queued is not None
        attempt = self.scheduler.cycles.pods.schedule(queued)
        if attempt is None:
            return None
        task = asyncio.create_task(self.scheduler.cycles.binding.bind(attempt))
        await turns()
        return task

    def place(self, one: Pod) -> str:
        places = places_of(self.context.queue, one.metadata.uid)
        assert len(places) <= 1
        return places[0] if places else ""

    @property
    def evicted(self) -> list[str]:
        return [deletion.name for deletion in self.writer.deletions]

    @property
    def messages(self) -> list[str]:
        return [event.note for event in self.writer.events if event.reason == "Preempted"]

    def end(self) -> None:
        assert len(self.context.services.preemptions) == 0
        self.context.queue.close()


async def turns() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


NOTE = f"Preempted by pod {HIGH.metadata.uid} on node n"


@pytest.mark.parametrize(
    ("at", "message"),
    [
        pytest.param("permit", "waiting on permit for pod: preempted", id="waits-at-permit"),
        pytest.param("preBind", 'running PreBind plugin "Gate": preempted by DefaultPreemption', id="in-pre-bind"),
    ],
)
async def test_a_victim_that_does_not_run_yet(at: str, message: str) -> None:
    """It is not deleted: its attempt ends as an error, the preemptor gets its room, and it is retried later."""
    stage = Stage(LOW)
    Gate.shut(at)
    binding = await stage.attempt()
    assert binding is not None
    stage.scheduler.feed.pod_added(HIGH)
    assert await stage.attempt() is None
    assert not await binding
    assert (stage.evicted, stage.messages) == ([], [f"{NOTE} (in kube-scheduler memory)."])
    said = [patch for patch in stage.writer.patches if patch.name == "low" and patch.condition is not None]
    assert [(patch.condition.reason, patch.condition.message) for patch in said if patch.condition] == [
        ("SchedulerError", message)
    ]
    assert (stage.place(LOW), stage.place(HIGH)) == ("errorBackoff", "backoff")
    Gate.open(stage.context.waiting)
    placed = await stage.attempt()
    assert placed is not None
    assert await placed
    assert [(each.name, each.node_name) for each in stage.writer.bindings] == [("high", "n")]
    stage.end()


async def test_a_victim_whose_bind_is_on_its_way_is_deleted() -> None:
    """It can no longer be prevented from running."""
    stage = Stage(LOW)
    Gate.shut("bind")
    binding = await stage.attempt()
    assert binding is not None
    stage.scheduler.feed.pod_added(HIGH)
    assert await stage.attempt() is None
    assert (stage.evicted, stage.messages, binding.done()) == (["low"], [], False)
    stage.writer.unanswered["low"](None)
    assert stage.messages == [NOTE]
    Gate.open(stage.context.waiting)
    assert await binding
    stage.end()


async def test_a_victim_that_is_gone_already() -> None:
    """It counts as evicted, and no preemption is reported."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.writer.unanswered["v0"](NotFoundError("gone"))
    assert stage.evicted == ["v0", "v1"]
    stage.writer.unanswered["v1"](None)
    assert stage.messages == [NOTE]
    stage.end()


async def test_a_failed_eviction_frees_a_preemptor_from_its_gate() -> None:
    """The first victim's deletion moved it to its gate before: no other event would open that."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.scheduler.feed.pod_deleted(VICTIMS[0])
    stage.writer.unanswered["v0"](None)
    assert stage.place(HIGH) == "gated"
    stage.writer.unanswered["v1"](ClusterWriteError("no answer"))
    assert stage.place(HIGH) == "active"
    stage.end()


@pytest.mark.parametrize(
    "fault", [pytest.param(None, id="evicted"), pytest.param(ClusterWriteError("no"), id="failed")]
)
async def test_a_profile_that_is_replaced(fault: ClusterWriteError | None) -> None:
    """The new revision gates the preemptor for the evictions of the old one, and releases it when they end."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.serve()
    assert stage.place(HIGH) == "gated"
    stage.writer.unanswered["v0"](None)
    stage.scheduler.feed.pod_deleted(VICTIMS[0])
    stage.writer.unanswered["v1"](fault)
    stage.scheduler.feed.pod_deleted(VICTIMS[1])
    assert stage.evicted == ["v0", "v1"]
    placed = await stage.attempt()
    assert placed is not None
    assert await placed
    stage.end()


@pytest.mark.parametrize(
    "fault", [pytest.param(None, id="evicted"), pytest.param(ClusterWriteError("no"), id="failed")]
)
async def test_a_preemptor_that_is_deleted(fault: ClusterWriteError | None) -> None:
    """Nothing of it remains when the evictions end, whatever their result."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.scheduler.feed.pod_deleted(HIGH)
    stage.writer.unanswered["v0"](None)
    stage.writer.unanswered["v1"](fault)
    assert (stage.place(HIGH), len(stage.context.queue.nominator)) == ("", 0)
    stage.end()


async def test_victims_that_end_gracefully_are_waited_for() -> None:
    """While a victim terminates the preemptor evicts no other pod; when it is gone the preemptor gets the room."""
    stage = Stage(pod("v", node_name="n", requests={"cpu": "4"}, priority=1), HIGH)
    stage.scheduler.feed.node_added(node("m"))
    stage.scheduler.feed.pod_added(pod("other", node_name="m", requests={"cpu": "4"}, priority=2))
    await stage.attempt()
    nominated = pod("high", requests={"cpu": "4"}, priority=10, nominated_node="n")
    stage.scheduler.feed.pod_updated(HIGH, nominated)
    (deletion,) = stage.writer.deletions
    assert deletion.condition is not None
    victim = pod("v", node_name="n", requests={"cpu": "4"}, priority=1)
    leaving = msgspec.structs.replace(
        victim,
        metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp=stage.clock.wall()),
        status=msgspec.structs.replace(victim.status, conditions=(deletion.condition,)),
    )
    stage.scheduler.feed.pod_updated(victim, leaving)
    stage.writer.unanswered["v"](None)
    stage.context.queue.activate([HIGH.metadata.uid])
    assert await stage.attempt() is None
    message = "preemption: not eligible due to a terminating pod on the nominated node."
    assert stage.writer.events[-1].note == f"0/2 nodes are available: 2 Insufficient cpu. {message}"
    assert (stage.evicted, stage.context.queue.nominator.node_of(HIGH.metadata.uid)) == (["v"], "n")
    stage.scheduler.feed.pod_deleted(leaving)
    placed = await stage.attempt()
    assert placed is not None
    assert await placed
    assert stage.writer.bindings[-1].node_name == "n"
    stage.end()


async def test_nominations_of_lower_priorities_are_withdrawn() -> None:
    """In memory at once, and in the API server's status; the pod that had it searches again."""
    nominated = pod("nominated", requests={"cpu": "4"}, priority=5, nominated_node="n")
    stage = Stage(*VICTIMS, nominated, HIGH)
    assert await stage.attempt() is None
    nominator = stage.context.queue.nominator
    assert [info.key for info in nominator.nominated_pods("n")] == ["default/high"]
    taken_back = [patch.nominated_node_name for patch in stage.writer.patches if patch.name == "nominated"]
    assert taken_back == [""]
    stage.writer.unanswered["v0"](None)
    stage.writer.unanswered["v1"](None)
    stage.end()


async def test_a_pod_that_must_not_preempt() -> None:
    """The policy forbids it; the message says so."""
    meek = pod("meek", requests={"cpu": "4"}, priority=10, preemption_policy="Never")
    stage = Stage(*VICTIMS, meek)
    assert await stage.attempt() is None
    assert stage.evicted == []
    message = "preemption: not eligible due to preemptionPolicy=Never."
    assert stage.writer.events[-1].note == f"0/1 nodes are available: 1 Insufficient cpu. {message}"
    stage.end()


async def test_what_is_counted_of_a_preemption() -> None:
    """All of its victims, including terminating ones, and the time until the last eviction was issued."""
    first = msgspec.structs.replace(
        VICTIMS[0], metadata=msgspec.structs.replace(VICTIMS[0].metadata, deletion_timestamp=VirtualClock().wall())
    )
    stage = Stage(first, VICTIMS[1], HIGH)
    await stage.attempt()
    assert stage.evicted == ["v1"]
    stage.clock.advance(3)
    stage.writer.unanswered["v1"](None)
    metrics = stage.context.metrics
    assert (metrics.victims.total, metrics.preemptions["success"].total) == (2, 3)
    stage.end()
