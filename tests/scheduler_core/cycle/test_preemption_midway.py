"""Preemption with concurrent changes, or with victims that are not bound yet."""

from __future__ import annotations

import asyncio

import msgspec

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
from tests.support.presence import present
from tests.support.scheduling import places_of
from tests.support.tables import table
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
        Gate.stop_at("")
        self.serve()
        self.scheduler.feed.node_added(node("n"))
        for each in pods:
            self.scheduler.feed.pod_added(each)

    def serve(self) -> None:
        """Make a new revision of the profile live."""
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])

    async def attempt(self) -> asyncio.Task[bool] | None:
        """Schedule the next pod; return its binding cycle at its first wait, or None if no node is feasible."""
        queued = present(self.context.queue.pop())
        attempt = self.scheduler.cycles.pods.schedule(queued)
        if attempt is None:
            return None
        task = asyncio.create_task(self.scheduler.cycles.binding.bind(attempt))
        await run_tasks()
        return task

    def place_of(self, each: Pod) -> str:
        places = places_of(self.context.queue, each.metadata.uid)
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


async def run_tasks() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


NOTE = f"Preempted by pod {HIGH.metadata.uid} on node n"


@table(
    "at, message",
    ("waits-at-permit", "permit", "waiting on permit for pod: preempted"),
    ("in-pre-bind", "preBind", 'running PreBind plugin "Gate": preempted by DefaultPreemption'),
)
async def test_a_victim_that_is_not_bound_yet(at: str, message: str) -> None:
    """A victim before its bind is not deleted: its attempt fails, and the preemptor is bound to its node."""
    stage = Stage(LOW)
    Gate.stop_at(at)
    binding = await stage.attempt()
    assert binding is not None
    stage.scheduler.feed.pod_added(HIGH)
    assert await stage.attempt() is None
    assert not await binding
    assert (stage.evicted, stage.messages) == ([], [f"{NOTE} (in kube-scheduler memory)."])
    patches = [patch for patch in stage.writer.patches if patch.name == "low" and patch.condition is not None]
    assert [(patch.condition.reason, patch.condition.message) for patch in patches if patch.condition] == [
        ("SchedulerError", message)
    ]
    assert (stage.place_of(LOW), stage.place_of(HIGH)) == ("errorBackoff", "backoff")
    Gate.open(stage.context.waiting)
    bound = await stage.attempt()
    assert bound is not None
    assert await bound
    assert [(each.name, each.node_name) for each in stage.writer.bindings] == [("high", "n")]
    stage.end()


async def test_a_victim_whose_bind_is_sent_is_deleted() -> None:
    """A victim whose bind request is sent is deleted, because its bind cannot be cancelled."""
    stage = Stage(LOW)
    Gate.stop_at("bind")
    binding = await stage.attempt()
    assert binding is not None
    stage.scheduler.feed.pod_added(HIGH)
    assert await stage.attempt() is None
    assert (stage.evicted, stage.messages, binding.done()) == (["low"], [], False)
    stage.writer.pending_deletions["low"](None)
    assert stage.messages == [NOTE]
    Gate.open(stage.context.waiting)
    assert await binding
    stage.end()


async def test_a_victim_that_does_not_exist() -> None:
    """A victim that does not exist counts as evicted, and no preemption event of it is recorded."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.writer.pending_deletions["v0"](NotFoundError("gone"))
    assert stage.evicted == ["v0", "v1"]
    stage.writer.pending_deletions["v1"](None)
    assert stage.messages == [NOTE]
    stage.end()


async def test_a_failed_eviction_activates_a_gated_preemptor() -> None:
    """A failed eviction activates the preemptor, which the first victim's deletion had moved to the gate."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.scheduler.feed.pod_deleted(VICTIMS[0])
    stage.writer.pending_deletions["v0"](None)
    assert stage.place_of(HIGH) == "gated"
    stage.writer.pending_deletions["v1"](ClusterWriteError("no answer"))
    assert stage.place_of(HIGH) == "active"
    stage.end()


@table("fault", ("evicted", None), ("failed", ClusterWriteError("no")))
async def test_a_profile_that_is_replaced(fault: ClusterWriteError | None) -> None:
    """The new profile revision gates the preemptor until the evictions of the old revision end."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.serve()
    assert stage.place_of(HIGH) == "gated"
    stage.writer.pending_deletions["v0"](None)
    stage.scheduler.feed.pod_deleted(VICTIMS[0])
    stage.writer.pending_deletions["v1"](fault)
    stage.scheduler.feed.pod_deleted(VICTIMS[1])
    assert stage.evicted == ["v0", "v1"]
    bound = await stage.attempt()
    assert bound is not None
    assert await bound
    stage.end()


@table("fault", ("evicted", None), ("failed", ClusterWriteError("no")))
async def test_a_preemptor_that_is_deleted(fault: ClusterWriteError | None) -> None:
    """A deleted preemptor has no queue entry and nomination when its evictions end, whatever their result."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.attempt()
    stage.scheduler.feed.pod_deleted(HIGH)
    stage.writer.pending_deletions["v0"](None)
    stage.writer.pending_deletions["v1"](fault)
    assert (stage.place_of(HIGH), len(stage.context.queue.nominator)) == ("", 0)
    stage.end()


async def test_a_preemptor_waits_for_terminating_victims() -> None:
    """While a victim terminates, the preemptor evicts no other pod; it is bound when the victim is deleted."""
    stage = Stage(pod("v", node_name="n", requests={"cpu": "4"}, priority=1), HIGH)
    stage.scheduler.feed.node_added(node("m"))
    stage.scheduler.feed.pod_added(pod("other", node_name="m", requests={"cpu": "4"}, priority=2))
    await stage.attempt()
    nominated = pod("high", requests={"cpu": "4"}, priority=10, nominated_node="n")
    stage.scheduler.feed.pod_updated(HIGH, nominated)
    (deletion,) = stage.writer.deletions
    assert deletion.condition is not None
    victim = pod("v", node_name="n", requests={"cpu": "4"}, priority=1)
    terminating = msgspec.structs.replace(
        victim,
        metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp=stage.clock.wall()),
        status=msgspec.structs.replace(victim.status, conditions=(deletion.condition,)),
    )
    stage.scheduler.feed.pod_updated(victim, terminating)
    stage.writer.pending_deletions["v"](None)
    stage.context.queue.activate([HIGH.metadata.uid])
    assert await stage.attempt() is None
    message = "preemption: not eligible due to a terminating pod on the nominated node."
    assert stage.writer.events[-1].note == f"0/2 nodes are available: 2 Insufficient cpu. {message}"
    assert (stage.evicted, stage.context.queue.nominator.node_of(HIGH.metadata.uid)) == (["v"], "n")
    stage.scheduler.feed.pod_deleted(terminating)
    bound = await stage.attempt()
    assert bound is not None
    assert await bound
    assert stage.writer.bindings[-1].node_name == "n"
    stage.end()


async def test_nominations_of_lower_priorities_are_withdrawn() -> None:
    """A preemption clears nominations of lower priority to its node, in memory and in the pods' status."""
    nominated = pod("nominated", requests={"cpu": "4"}, priority=5, nominated_node="n")
    stage = Stage(*VICTIMS, nominated, HIGH)
    assert await stage.attempt() is None
    nominator = stage.context.queue.nominator
    assert [info.key for info in nominator.nominated_pods("n")] == ["default/high"]
    cleared = [patch.nominated_node_name for patch in stage.writer.patches if patch.name == "nominated"]
    assert cleared == [""]
    stage.writer.pending_deletions["v0"](None)
    stage.writer.pending_deletions["v1"](None)
    stage.end()


async def test_a_pod_that_must_not_preempt() -> None:
    """A pod with preemptionPolicy Never evicts no pod, and the event has the reason."""
    never_preempts = pod("never-preempts", requests={"cpu": "4"}, priority=10, preemption_policy="Never")
    stage = Stage(*VICTIMS, never_preempts)
    assert await stage.attempt() is None
    assert stage.evicted == []
    message = "preemption: not eligible due to preemptionPolicy=Never."
    assert stage.writer.events[-1].note == f"0/1 nodes are available: 1 Insufficient cpu. {message}"
    stage.end()


async def test_preemption_metrics() -> None:
    """The metrics count all victims, including terminating ones, and the time until the last eviction is issued."""
    first = msgspec.structs.replace(
        VICTIMS[0], metadata=msgspec.structs.replace(VICTIMS[0].metadata, deletion_timestamp=VirtualClock().wall())
    )
    stage = Stage(first, VICTIMS[1], HIGH)
    await stage.attempt()
    assert stage.evicted == ["v1"]
    stage.clock.advance(3)
    stage.writer.pending_deletions["v1"](None)
    metrics = stage.context.metrics
    assert (metrics.victims.total, metrics.preemptions["success"].total) == (2, 3)
    stage.end()
