"""Preemption from the failed attempt to the preemptor's bind, with the queue and the preemption gate."""

from __future__ import annotations

import sys

import pytest

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ClusterWriteError
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.injected_errors import InjectedErrors
from tests.support.preemption import DeferringWriter
from tests.support.presence import present
from tests.support.scheduling import places_of
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

VICTIMS = [pod(f"v{index}", node_name="n", requests={"cpu": "2"}, priority=1 - index) for index in range(2)]
HIGH = pod("high", requests={"cpu": "4"}, priority=10)
UID = HIGH.metadata.uid
_ANSWERS = frozenset(
    ("cycle/plugin_handle.py:ReportedDeletions._answered", "plugins/default_preemption/eviction.py:Evictions._begin")
)


class Stage:
    """A full node and a pod of high priority that was just rejected."""

    def __init__(self) -> None:
        self.clock, self.writer = VirtualClock(), DeferringWriter()
        self.scheduler = Scheduler(self.clock, self.writer)
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])
        self.context = self.scheduler.context
        self.scheduler.feed.node_added(node("n"))
        for each in (*VICTIMS, HIGH):
            self.scheduler.feed.pod_added(each)

    def attempt(self) -> str:
        """Run the scheduling cycle of the next pod, and return its node."""
        queued = present(self.context.queue.pop())
        attempt = self.scheduler.cycles.pods.schedule(queued)
        return "" if attempt is None else attempt.node_name

    def delete(self, victim: Pod) -> None:
        self.scheduler.feed.pod_deleted(victim)

    @property
    def places(self) -> list[str]:
        return places_of(self.context.queue, UID)


async def test_a_preemption() -> None:
    """The preemptor is gated until all evictions are issued, and is scheduled when the last victim is deleted."""
    stage = Stage()
    assert stage.attempt() == ""
    assert (stage.places, stage.context.queue.nominator.node_of(UID)) == (["unschedulable"], "n")
    assert [deletion.name for deletion in stage.writer.deletions] == ["v0"]
    stage.delete(VICTIMS[0])
    assert stage.places == ["gated"]
    stage.writer.pending_deletions["v0"](None)
    assert [deletion.name for deletion in stage.writer.deletions] == ["v0", "v1"]
    stage.delete(VICTIMS[1])
    stage.writer.pending_deletions["v1"](None)
    assert stage.places == ["backoff"]
    assert stage.attempt() == "n"
    stage.context.queue.close()


async def test_the_nomination_is_written_and_the_message_names_the_node() -> None:
    """The nomination is written, and the condition contains the result of the preemption."""
    stage = Stage()
    stage.attempt()
    (patch,) = stage.writer.patches
    assert (patch.name, patch.nominated_node_name) == ("high", "n")
    assert patch.condition is not None
    assert patch.condition.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node n, preempting 2 victims"
    )


async def test_freed_capacity_is_reserved_for_the_preemptor() -> None:
    """A pod of lower priority does not get the freed capacity."""
    stage = Stage()
    stage.attempt()
    stage.delete(VICTIMS[0])
    stage.scheduler.feed.pod_added(pod("low", requests={"cpu": "1"}, priority=0))
    assert stage.attempt() == ""


@table("failing", ("first-victim", "v0"), ("last-victim", "v1"))
async def test_a_failed_eviction_activates_the_preemptor(failing: str) -> None:
    """The preemptor is activated after a failed eviction, because no event would requeue it."""
    stage = Stage()
    stage.attempt()
    for name in ("v0", "v1"):
        stage.writer.pending_deletions[name](ClusterWriteError("no answer") if name == failing else None)
        if name == failing:
            break
    assert stage.places == ["active"]
    stage.context.queue.close()


async def test_a_preemptor_that_is_deleted() -> None:
    """The evictions of a deleted preemptor continue, and its nomination and queue entry are removed."""
    stage = Stage()
    stage.attempt()
    stage.scheduler.feed.pod_deleted(HIGH)
    stage.writer.pending_deletions["v0"](None)
    stage.writer.pending_deletions["v1"](None)
    assert stage.places == []
    assert len(stage.context.queue.nominator) == 0


def _end_of_a_preemption(number: int) -> tuple[Stage, InjectedErrors]:
    """Preempt two pods, with an exception at one of the calls from the first eviction to the last answer."""
    stage = Stage()
    errors = InjectedErrors(lambda call, _site: RuntimeError if call == number else None, _ANSWERS, is_single=True)
    with errors.active():
        queued = present(stage.context.queue.pop())
        try:
            stage.scheduler.cycles.pods.schedule(queued)
        except RuntimeError as fault:
            stage.scheduler.cycles.errors.interrupted(queued, None, fault)
    answered: set[str] = set()
    while answered != stage.writer.pending_deletions.keys():
        name = min(stage.writer.pending_deletions.keys() - answered)
        answered.add(name)
        errors.arm()
        stage.writer.pending_deletions[name](None)
        sys.setprofile(None)
    return stage, errors


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.nightly)])
async def test_a_preemption_ends_whatever_raises(step: int) -> None:
    """One exception at each *step*-th call: a preemption that does not end would gate its preemptor permanently."""
    stage, counted = _end_of_a_preemption(0)
    stage.context.queue.close()
    assert counted.calls
    for number in range(1, counted.calls + 1, step):
        stage, errors = _end_of_a_preemption(number)
        assert not len(stage.context.services.preemptions), errors.injected
        stage.delete(VICTIMS[0])
        stage.delete(VICTIMS[1])
        stage.clock.advance(20.0)
        stage.context.queue.flush()
        assert stage.places != ["gated"], errors.injected
        stage.context.queue.close()
