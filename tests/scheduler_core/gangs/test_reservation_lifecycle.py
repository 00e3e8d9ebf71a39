"""Reservations of Strict gangs: when they begin, which pods they block, and when they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler_core.gangs.failure_handler import GangFailure
from scheduler_core.gangs.reservation_cycle import ReservationSearch, ReservationStep
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.pod import TopologySpreadConstraint
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.placement.reservations import ReservedNodes
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from tests.support.affinities import anti_affinity_to, app, term
from tests.support.builders import node
from tests.support.gang_traffic import PATIENCE, Traffic, full_traffic
from tests.support.gangs import gang_of, group, key, members, settle, settle_gang
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig, profile
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock, VirtualTimer

RESERVED = "node(s) were reserved for gang default/big"
APART = anti_affinity_to("noisy")
SPREAD = TopologySpreadConstraint(1, "zone", "DoNotSchedule", label_selector=app("noisy"))
AVOIDS_GANG = anti_affinity_to(term(LabelSelector({"bayplan.dev/pod-group": "big"})))


@table(
    "later_pod, expected",
    ("fits beside the gang", {"cpu": 2}, True),
    ("needs capacity of the gang", {"cpu": 3}, False),
    ("higher priority", {"cpu": 3, "priority": 1}, True),
    ("label without effect", {"cpu": 1, "labels": {"app": "noisy"}}, True),
    ("anti-affinity to the gang", {"cpu": 1, "affinity": AVOIDS_GANG}, False),
    ("no requests", {"cpu": 0, "requests": {}}, True),
)
async def test_pods_that_are_created_later(later_pod: dict[str, Any], expected: bool) -> None:
    """Pods that will fit beside the gang are admitted; others wait."""
    traffic = await full_traffic()
    await traffic.step(100.0)
    later = traffic.add_pending(**later_pod)
    await traffic.settle()
    if later_pod["cpu"] == 3 and expected:
        # Two CPUs are free on each node. The pod evicts no pod, so it waits for the next pod that ends.
        await traffic.step(100.0)
    assert traffic.is_bound(later) == expected


@table(
    "member, later_pod, expected",
    ("label of the members' anti-affinity", {"affinity": APART}, {"labels": {"app": "noisy"}}, False),
    ("label outside the members' anti-affinity", {"affinity": APART}, {"labels": {"app": "quiet"}}, True),
    ("label of the members' spread constraint", {"spread": [SPREAD]}, {"labels": {"app": "noisy"}}, False),
    ("label outside the members' spread constraint", {"spread": [SPREAD]}, {"labels": {"app": "quiet"}}, True),
    ("host port of the members", {"ports": [80]}, {"ports": [80]}, False),
    ("another host port", {"ports": [80]}, {"ports": [81]}, True),
)
async def test_pods_that_would_reject_members(
    member: dict[str, Any], later_pod: dict[str, Any], expected: bool
) -> None:
    """Pods whose host ports or labels would reject members are not admitted."""
    traffic = Traffic()
    traffic.nodes({"a": 4, "b": 4}, labels={"zone": "z"})
    for name in ("a", "b"):
        traffic.add_running(name, 3, 100.0)
    traffic.gang("big", 2, 2, member=member)
    await traffic.reserve("big")
    later = traffic.add_pending(1, **later_pod)
    await traffic.settle()
    assert traffic.is_bound(later) == expected


async def test_a_blocked_pod_is_reported() -> None:
    """The condition of a blocked pod names the gang of the reservation and reports that preemption does not help."""
    traffic = await full_traffic()
    await traffic.step(100.0)
    traffic.add_pending(3)
    await traffic.settle()
    assert RESERVED in traffic.rig.condition.message
    assert "2 Preemption is not helpful for scheduling" in traffic.rig.condition.message


async def test_preemption_does_not_use_reserved_capacity() -> None:
    """A pod evicts no pod from reserved nodes unless its priority is higher than the gang's."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    traffic.add_running("a", 4, 100.0)
    traffic.gang("big", 2, 2, priority=5, member={"preemption_policy": "Never"})
    await traffic.reserve("big")
    traffic.add_pending(4, priority=5)
    await traffic.settle()
    assert RESERVED in traffic.rig.condition.message
    assert traffic.rig.writer.deletions == []


async def test_blocked_pods_are_requeued_at_the_end() -> None:
    """The end of a reservation activates the pods that it blocked."""
    traffic = await full_traffic()
    await traffic.step(100.0)
    later = traffic.add_pending(3)
    await traffic.settle()
    assert traffic.rig.place_of(later) == "unschedulable"
    traffic.rig.scheduler.group_feed.group_changed(group("big", min_member=3, is_strict=False))
    assert traffic.gang_named("big").reservation == ""
    assert traffic.rig.place_of(later) == "active"


async def test_backfilled_capacity_is_backfilled_again() -> None:
    """A pod that is blocked because another pod was admitted is requeued when the other pod is deleted."""
    traffic = await full_traffic()
    await traffic.step(100.0)
    first = traffic.add_pending(2, 10.0)
    await traffic.settle()
    second = traffic.add_pending(2)
    await traffic.settle()
    assert (traffic.is_bound(first), traffic.is_bound(second)) == (True, False)
    await traffic.step(11.0)
    assert traffic.is_bound(second)


async def test_a_reservation_begins_by_time_alone() -> None:
    """Capacity is reserved after the delay, without any event."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    traffic.add_running("a", 4)
    traffic.gang("big", 2, 2)
    await traffic.settle()
    await traffic.step(PATIENCE - 1.0)
    assert traffic.gang_named("big").reservation == ""
    await traffic.step(1.0)
    assert traffic.gang_named("big").reservation == "a"
    outcome = present(traffic.gang_named("big").outcome)
    assert "capacity is reserved for it, on a, until the pods that run there have ended" in outcome.message


async def test_one_reservation_for_the_same_nodes() -> None:
    """The second gang reports that it waits, and gets its reservation when the first gang is scheduled."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    traffic.add_running("a", 4, 60.0)
    traffic.gang("first", 2, 2, 30.0)
    traffic.gang("second", 2, 2)
    await traffic.reserve("first")
    second = traffic.gang_named("second")
    assert second.reservation == ""
    assert "capacity that it needs is reserved for gang default/first" in present(second.outcome).message
    await traffic.step(60.0)
    assert (traffic.is_scheduled("first"), second.reservation) == (True, "a")
    await traffic.step(30.0)
    assert traffic.is_scheduled("second")


async def test_reservations_beside_each_other() -> None:
    """Gangs that need different nodes have reservations at the same time."""
    traffic = Traffic()
    traffic.nodes({"a": 4, "b": 4})
    traffic.add_running("a", 4)
    traffic.add_running("b", 4)
    traffic.gang("first", 2, 2)
    traffic.gang("second", 2, 2)
    await traffic.reserve("first")
    assert {traffic.gang_named("first").reservation, traffic.gang_named("second").reservation} == {"a", "b"}


@pytest.mark.parametrize(("priority", "takes_over"), [(0, False), (9, True)])
async def test_a_plan_of_another_process_ends_only_reservations_of_lower_priority(
    priority: int, *, takes_over: bool
) -> None:
    """A node may have been reserved for another gang while another process searched the plan."""
    traffic = await full_traffic()
    late = traffic.gang("late", 2, 2, priority=priority, member={"preemption_policy": "Never"})
    await traffic.settle()
    gang, rig = traffic.gang_named("late"), traffic.rig
    request = PlacementRequest.of(gang, rig.context.profiles.live["default-scheduler"])
    slots = tuple((each.metadata.uid, "a") for each in late)
    found = ReservationSearch(ReservationStep.PLANNED, ReservedNodes(slots, (), 0, ""), is_requested=True)
    rig.scheduler.cycles.gangs.rejection.reserving.reserve(request, GangFailure("late"), found)
    assert (gang.reservation, traffic.gang_named("big").reservation) == (("a", "") if takes_over else ("", "a, b"))


async def test_a_gang_of_higher_priority_takes_over() -> None:
    """A gang of higher priority takes over the reservation if no other nodes are feasible."""
    traffic = await full_traffic()
    traffic.gang("vital", 4, 2, priority=9, member={"preemption_policy": "Never"})
    await traffic.reserve("vital")
    await traffic.step(20.0)
    big = traffic.gang_named("big")
    assert (traffic.gang_named("vital").reservation, big.reservation) == ("a, b", "")
    assert "is reserved for gang default/vital" in present(big.outcome).message


@table(
    "end",
    ("the group is deleted", lambda t: t.rig.scheduler.group_feed.group_deleted(key("big"))),
    ("the group is no longer Strict", lambda t: t.rig.scheduler.group_feed.group_changed(group("big", min_member=3))),
    ("the quorum is lost", lambda t: t.rig.scheduler.feed.pod_deleted(next(iter(t.gang_named("big").pods.values())))),
)
async def test_a_reservation_ends(end: Callable[[Traffic], None]) -> None:
    """A reservation ends when its gang no longer needs it or can no longer use it."""
    traffic = await full_traffic()
    end(traffic)
    assert not traffic.rig.scheduler.reservations.by_gang
    assert traffic.gang_named("big").reservation == ""


@table("seconds, expected", ("last blocking pods", 200.0, "active"), ("one of several blocking pods", 100.0, "backoff"))
async def test_a_blocking_pod_is_deleted(seconds: float, expected: str) -> None:
    """The gang is activated as soon as it has enough capacity, whatever its backoff."""
    traffic = await full_traffic(options={"initial_backoff_seconds": 300.0, "max_backoff_seconds": 300.0})
    member = next(iter(traffic.gang_named("big").pods.values()))
    traffic.rig.clock.advance(seconds - 30.0)
    over = [each for each, due in traffic.ends_at.items() if due <= 1000.0 + seconds]
    traffic.delete_named(*over)
    assert traffic.rig.place_of(member) == expected


# -- a clock that advances with each reading and timers that fire slightly early, as real ones do ----------------------


TICK, EARLY, RESERVED_AFTER = 1e-5, 4e-4, 5.0


class RealClock(VirtualClock):
    """Clock that advances with each reading, and whose timers fire less than a millisecond early."""

    def now(self) -> float:
        self._now += TICK
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        return super().call_later(max(0.0, seconds - EARLY), callback)


@pytest.mark.parametrize("readings", range(60))
async def test_the_time_of_a_reservation_is_never_missed(readings: int) -> None:
    """Capacity is reserved for the gang, whichever reading of the clock first returns the due time."""
    clock, writer = RealClock(), RecordingWriter()
    options = SchedulerOptions(gang_reservation_seconds=RESERVED_AFTER)
    rig = Rig(Scheduler(clock, writer, options, in_tree_registry(), default_plugins()), clock, writer)
    rig.serve(profile())
    rig.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    rig.add(node("a", allocatable={"cpu": "2", "pods": "9"}))
    await settle_gang(rig, *members(2, "other"), of=group("other", min_member=2))
    await settle_gang(rig, *members(2, "large"), of=group("large", min_member=2, is_strict=True))
    failed = present(gang_of(rig, "large").first_failure)
    # When the node requeues the gang, the due time is *readings* readings of the clock away.
    clock.advance(failed + RESERVED_AFTER - readings * TICK - clock.now())
    await settle(rig, node("b", allocatable={"cpu": "1", "pods": "9"}))
    clock.advance(0.5)
    await settle(rig)
    assert gang_of(rig, "large").reservation
