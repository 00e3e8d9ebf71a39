"""Preemption from the failed attempt to the preemptor's bind: the queue, the gate, and changes in between."""

from __future__ import annotations

import asyncio
import sys

import msgspec
import pytest

from scheduler_core.config.plugin_set_types import Plugins, PluginSet
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.gang_preemption import terminating_pod
from tests.support.injected_errors import InjectedErrors
from tests.support.preemption import DeferringWriter
from tests.support.presence import present
from tests.support.scheduling import Rig, plugin_set, profile
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

HIGH = pod("high", requests={"cpu": "4"}, priority=10)
LOW = pod("low", requests={"cpu": "4"}, priority=1)
VICTIMS = [pod(f"v{index}", node_name="n", requests={"cpu": "2"}, priority=1 - index) for index in range(2)]
_ANSWERS = frozenset(
    ("cycle/plugin_handle.py:ReportedDeletions._answered", "plugins/default_preemption/eviction.py:Evictions._begin")
)


class Stage(Rig):
    """The default profile with a gate in the binding cycle, one node, and deletions that the test answers."""

    writer: DeferringWriter

    def __init__(self, *pods: Pod) -> None:
        registry, clock = in_tree_registry(), VirtualClock()
        registry.register(Gate)
        enabled = (*plugin_set("Gate").enabled, *default_plugins().multi_point.enabled)
        defaults = Plugins(multi_point=PluginSet(enabled=enabled))
        writer = DeferringWriter()
        super().__init__(Scheduler(clock, writer, registry=registry, defaults=defaults), clock, writer)
        Gate.stop_at("")
        self.serve(profile())
        self.add(node("n"), *pods)

    async def begin(self) -> asyncio.Task[bool] | None:
        """Schedule the next pod; return its binding cycle at its first wait, or None if no node is feasible."""
        attempt = self.decide()
        if attempt is None:
            return None
        task = asyncio.create_task(self.scheduler.cycles.binding.bind(attempt))
        for _ in range(6):
            await asyncio.sleep(0)
        return task

    def answer(self, name: str, error: ClusterWriteError | None = None) -> None:
        """Answer the deletion of a victim."""
        self.writer.pending_deletions[name](error)

    def delete(self, victim: Pod) -> None:
        self.scheduler.feed.pod_deleted(victim)

    @property
    def evicted(self) -> list[str]:
        return [deletion.name for deletion in self.writer.deletions]

    @property
    def messages(self) -> list[str]:
        return [event.note for event in self.writer.events if event.reason == "Preempted"]

    def end(self) -> None:
        assert len(self.context.services.preemptions) == 0
        self.queue.close()


async def test_a_preemption() -> None:
    """The preemptor is gated until all evictions are issued, and is scheduled when the last victim is deleted."""
    stage = Stage(*VICTIMS, HIGH)
    assert await stage.begin() is None
    assert (stage.place_of(HIGH), stage.queue.nominator.node_of(HIGH.metadata.uid)) == ("unschedulable", "n")
    assert stage.evicted == ["v0"]
    stage.delete(VICTIMS[0])
    assert stage.place_of(HIGH) == "gated"
    stage.answer("v0")
    assert stage.evicted == ["v0", "v1"]
    stage.delete(VICTIMS[1])
    stage.answer("v1")
    assert stage.place_of(HIGH) == "backoff"
    assert await present(await stage.begin())
    stage.queue.close()


async def test_the_nomination_is_written_and_the_message_names_the_node() -> None:
    """The nomination is written, and the condition contains the result of the preemption."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.begin()
    (patch,) = stage.writer.patches
    assert (patch.name, patch.nominated_node_name) == ("high", "n")
    assert present(patch.condition).message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node n, preempting 2 victims"
    )


@table(
    "failing, is_gated",
    ("first-victim", "v0", False),
    ("last-victim", "v1", False),
    ("last-victim-after-the-end-of-the-first", "v1", True),
)
async def test_a_failed_eviction_activates_the_preemptor(failing: str, *, is_gated: bool) -> None:
    """The preemptor is activated after a failed eviction, because no event would requeue it, also from the gate."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.begin()
    if is_gated:
        stage.delete(VICTIMS[0])
    if failing == "v1":
        stage.answer("v0")
    assert stage.place_of(HIGH) == ("gated" if is_gated else "unschedulable")
    stage.answer(failing, ClusterWriteError("no answer"))
    assert stage.place_of(HIGH) == "active"
    stage.end()


def _end_of_a_preemption(number: int) -> tuple[Stage, InjectedErrors]:
    """Preempt two pods, with an exception at one of the calls from the first eviction to the last answer."""
    stage = Stage(*VICTIMS, HIGH)
    errors = InjectedErrors(lambda call, _site: RuntimeError if call == number else None, _ANSWERS, is_single=True)
    with errors.active():
        queued = present(stage.queue.pop())
        try:
            stage.scheduler.cycles.pods.schedule(queued)
        except RuntimeError as fault:
            stage.scheduler.cycles.errors.interrupted(queued, None, fault)
    answered: set[str] = set()
    while answered != stage.writer.pending_deletions.keys():
        name = min(stage.writer.pending_deletions.keys() - answered)
        answered.add(name)
        errors.arm()
        stage.answer(name)
        sys.setprofile(None)
    return stage, errors


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.nightly)])
async def test_a_preemption_ends_whatever_raises(step: int) -> None:
    """One exception at each *step*-th call: a preemption that does not end would gate its preemptor permanently."""
    stage, counted = _end_of_a_preemption(0)
    stage.queue.close()
    assert counted.calls
    for number in range(1, counted.calls + 1, step):
        stage, errors = _end_of_a_preemption(number)
        assert not len(stage.context.services.preemptions), errors.injected
        stage.delete(VICTIMS[0])
        stage.delete(VICTIMS[1])
        stage.clock.advance(20.0)
        stage.queue.flush()
        assert stage.place_of(HIGH) != "gated", errors.injected
        stage.queue.close()


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
    binding = present(await stage.begin())
    stage.add(HIGH)
    assert await stage.begin() is None
    assert not await binding
    assert (stage.evicted, stage.messages) == ([], [f"{NOTE} (in kube-scheduler memory)."])
    patches = [patch for patch in stage.writer.patches if patch.name == "low" and patch.condition is not None]
    assert [(patch.condition.reason, patch.condition.message) for patch in patches if patch.condition] == [
        ("SchedulerError", message)
    ]
    assert (stage.place_of(LOW), stage.place_of(HIGH)) == ("errorBackoff", "backoff")
    Gate.open(stage.context.waiting)
    assert await present(await stage.begin())
    assert [(each.name, each.node_name) for each in stage.writer.bindings] == [("high", "n")]
    stage.end()


async def test_a_victim_whose_bind_is_sent_is_deleted() -> None:
    """A victim whose bind request is sent is deleted, because its bind cannot be cancelled."""
    stage = Stage(LOW)
    Gate.stop_at("bind")
    binding = present(await stage.begin())
    stage.add(HIGH)
    assert await stage.begin() is None
    assert (stage.evicted, stage.messages, binding.done()) == (["low"], [], False)
    stage.answer("low")
    assert stage.messages == [NOTE]
    Gate.open(stage.context.waiting)
    assert await binding
    stage.end()


async def test_a_victim_that_does_not_exist() -> None:
    """A victim that does not exist counts as evicted, and no preemption event of it is recorded."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.begin()
    stage.answer("v0", NotFoundError("gone"))
    assert stage.evicted == ["v0", "v1"]
    stage.answer("v1")
    assert stage.messages == [NOTE]
    stage.end()


@table("fault", ("evicted", None), ("failed", ClusterWriteError("no")))
async def test_a_profile_that_is_replaced(fault: ClusterWriteError | None) -> None:
    """The new profile revision gates the preemptor until the evictions of the old revision end."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.begin()
    stage.serve(profile())
    assert stage.place_of(HIGH) == "gated"
    stage.answer("v0")
    stage.delete(VICTIMS[0])
    stage.answer("v1", fault)
    stage.delete(VICTIMS[1])
    assert stage.evicted == ["v0", "v1"]
    assert await present(await stage.begin())
    stage.end()


@table("fault", ("evicted", None), ("failed", ClusterWriteError("no")))
async def test_a_preemptor_that_is_deleted(fault: ClusterWriteError | None) -> None:
    """A deleted preemptor has no queue entry and nomination when its evictions end, whatever their result."""
    stage = Stage(*VICTIMS, HIGH)
    await stage.begin()
    stage.delete(HIGH)
    stage.answer("v0")
    stage.answer("v1", fault)
    assert (stage.place_of(HIGH), len(stage.queue.nominator)) == ("", 0)
    stage.end()


async def test_a_preemptor_waits_for_terminating_victims() -> None:
    """While a victim terminates, the preemptor evicts no other pod; it is bound when the victim is deleted."""
    stage = Stage(pod("v", node_name="n", requests={"cpu": "4"}, priority=1), HIGH)
    stage.add(node("m"))
    stage.add(pod("other", node_name="m", requests={"cpu": "4"}, priority=2))
    await stage.begin()
    nominated = pod("high", requests={"cpu": "4"}, priority=10, nominated_node="n")
    stage.scheduler.feed.pod_updated(HIGH, nominated)
    (deletion,) = stage.writer.deletions
    victim = pod("v", node_name="n", requests={"cpu": "4"}, priority=1)
    terminating = msgspec.structs.replace(
        victim,
        metadata=msgspec.structs.replace(victim.metadata, deletion_timestamp=stage.clock.wall()),
        status=msgspec.structs.replace(victim.status, conditions=(present(deletion.condition),)),
    )
    stage.scheduler.feed.pod_updated(victim, terminating)
    stage.answer("v")
    stage.queue.activate([HIGH.metadata.uid])
    assert await stage.begin() is None
    message = "preemption: not eligible due to a terminating pod on the nominated node."
    assert stage.writer.events[-1].note == f"0/2 nodes are available: 2 Insufficient cpu. {message}"
    assert (stage.evicted, stage.queue.nominator.node_of(HIGH.metadata.uid)) == (["v"], "n")
    stage.delete(terminating)
    assert await present(await stage.begin())
    assert stage.writer.bindings[-1].node_name == "n"
    stage.end()


async def test_nominations_of_lower_priorities_are_withdrawn() -> None:
    """A preemption clears nominations of lower priority to its node, in memory and in the pods' status."""
    nominated = pod("nominated", requests={"cpu": "4"}, priority=5, nominated_node="n")
    stage = Stage(*VICTIMS, nominated, HIGH)
    assert await stage.begin() is None
    nominator = stage.queue.nominator
    assert [info.key for info in nominator.nominated_pods("n")] == ["default/high"]
    cleared = [patch.nominated_node_name for patch in stage.writer.patches if patch.name == "nominated"]
    assert cleared == [""]
    stage.answer("v0")
    stage.answer("v1")
    stage.end()


async def test_a_pod_that_must_not_preempt() -> None:
    """A pod with preemptionPolicy Never evicts no pod, and the event has the reason."""
    never_preempts = pod("never-preempts", requests={"cpu": "4"}, priority=10, preemption_policy="Never")
    stage = Stage(*VICTIMS, never_preempts)
    assert await stage.begin() is None
    assert stage.evicted == []
    message = "preemption: not eligible due to preemptionPolicy=Never."
    assert stage.writer.events[-1].note == f"0/1 nodes are available: 1 Insufficient cpu. {message}"
    stage.end()


async def test_preemption_metrics() -> None:
    """The metrics count all victims, including terminating ones, and the time until the last eviction is issued."""
    stage = Stage(terminating_pod(VICTIMS[0]), VICTIMS[1], HIGH)
    await stage.begin()
    assert stage.evicted == ["v1"]
    stage.clock.advance(3)
    stage.answer("v1")
    metrics = stage.context.metrics
    assert (metrics.victims.total, metrics.preemptions["success"].total) == (2, 3)
    stage.end()
