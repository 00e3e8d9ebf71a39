"""Tests of the simulation's ledger: pods that another scheduler has bound first."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from scheduler_core.cycle.freed_capacity_event import on_node
from scheduler_core.snapshot.pod_info import PodInfo
from tests.simulation.api_server import ApiServer
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.ledger import ReservationLedger, RunState
from tests.simulation.pod_groups import PodGroups
from tests.simulation.received import ReceivedFeed
from tests.support.builders import node, pod
from tests.support.scheduling import rig
from tests.support.tables import table

WEB = pod("web", requests={"cpu": "400m"})
WAITING = replace(WEB, metadata=replace(WEB.metadata, resource_version="1"))
BOUND = replace(on_node("small", WAITING), metadata=replace(WEB.metadata, resource_version="2"))


def ledger_after_rival_bind() -> tuple[ReservationLedger, ReceivedFeed, PodInfo, list[str]]:
    """Return a ledger with 1,000 free milli-CPU on node large and -100 on node small, and its problems.

    The pod was reserved on node large, a read has shown it on node small, and the reservation is released.
    """
    problems: list[str] = []
    scheduler_rig, groups = rig(), PodGroups(lambda _: None)
    ledger = ReservationLedger(
        RunState(
            ApiServer(), FaultCounts(), {}, lambda _: None, problems.append, lambda: 0.0, {}, {}, groups, lambda _: None
        )
    )
    received = ReceivedFeed(scheduler_rig.scheduler, scheduler_rig.scheduler.context.clock)
    ledger.watch(received)
    for name, cpu in (("large", "1000m"), ("small", "300m")):
        received.node_added(node(name, allocatable={"cpu": cpu, "memory": "1Gi", "pods": "10"}))
    received.pod_added(WAITING)
    info = scheduler_rig.context.cache.columns.compile_pod(WAITING)
    ledger.reserved(info, "large")
    ledger.bound_by_rival(info.uid, "small")
    assert ledger.free_cpu() == 900
    ledger.unreserved(info, "large")
    return ledger, received, info, problems


@table(
    "then, free",
    ("watch-is-late", lambda _: None, 1000),
    ("watch-shows-the-bind", lambda received: received.pod_updated(WAITING, BOUND), 1000),
    ("deleted", lambda received: received.pod_deleted(BOUND), 1300),
)
def test_a_pod_bound_by_a_rival_counts_on_the_rivals_node(then: Callable[[ReceivedFeed], None], free: int) -> None:
    """The pod counts once, before and after a watch shows the bind, until it is deleted."""
    ledger, received, _, problems = ledger_after_rival_bind()
    then(received)
    assert (ledger.free_cpu(), problems) == (free, [])


def test_a_pod_bound_by_a_rival_must_not_be_scheduled() -> None:
    """A reservation after the read is a problem, although no watch has shown the bind."""
    ledger, _, info, problems = ledger_after_rival_bind()
    ledger.reserved(info, "large")
    assert problems == [f"{info.uid} is scheduled although a read has shown it on small"]
