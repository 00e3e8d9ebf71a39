"""Cycles that are counted many at a time: as if each had been counted when it ended."""

from __future__ import annotations

from scheduler_core.config.plugins_config import Plugins
from scheduler_core.cycle.measures import SAMPLED_CYCLES
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import Point
from scheduler_core.framework.extension_points import FilterPlugin
from scheduler_core.framework.status import Code, Status, unschedulable
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, Rig, plugin_set, rig

SECONDS = 1 / 16
PODS = 3 * SAMPLED_CYCLES


class Picky(FilterPlugin):
    """Takes 1/16 s; lets every node pass."""

    name = "Picky"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> None:
        self.handle.clock.advance(SECONDS)  # type: ignore[attr-defined]  # the rig's clock

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("never asked")


def decided(*cpus: str) -> Rig:
    """A scheduler that has tried one pod for each of ``cpus``."""
    plugins = ("Picky", "NodeResourcesFit", "NodePorts", "DefaultPreemption", *BARE)
    made = rig([Picky], defaults=Plugins(multi_point=plugin_set(*plugins)))
    made.add(node("n0", allocatable={"cpu": "64", "memory": "64Gi", "pods": "110"}), node("n1"))
    for number, cpu in enumerate(cpus):
        made.add(pod(f"p{number}", requests={"cpu": cpu}))
        made.decide()
    return made


async def test_points_are_counted_when_somebody_reads() -> None:
    """Each cycle once for each of its points, with the seconds that it took."""
    measures = decided(*["10m"] * PODS).scheduler.context.measures
    filtered = measures.profile("default-scheduler").points[Point.FILTER][Code.SUCCESS]
    assert filtered.count == 0
    measures.settle()
    measures.settle()
    assert (filtered.count, filtered.total, measures.algorithm.total) == (PODS, SECONDS * PODS, SECONDS * PODS)


async def test_plugins_are_counted_in_one_cycle_of_ten() -> None:
    """Each with its own seconds and its answer."""
    measures = decided(*["10m"] * PODS).scheduler.context.measures
    measures.settle()
    picky = measures.plugins[Point.FILTER, "Picky", Code.SUCCESS]
    assert (picky.count, picky.total) == (PODS // SAMPLED_CYCLES, SECONDS * PODS / SAMPLED_CYCLES)
    assert measures.plugins[Point.PRE_FILTER, "NodePorts", Code.SKIP].count == PODS // SAMPLED_CYCLES
    assert not any(plugin == "unknown" for _, plugin, _ in measures.plugins)


async def test_cycles_that_went_another_way_are_told_apart() -> None:
    """A plugin that rejects in one sampled cycle and not in the next is counted under both of its answers."""
    calm = ["10m"] * (SAMPLED_CYCLES - 1)
    measures = decided(*calm, "1000", *calm, "10m").scheduler.context.measures
    measures.settle()
    counts = {
        code.name: observed.count
        for (point, plugin, code), observed in measures.plugins.items()
        if (point, plugin) == (Point.FILTER, "NodeResourcesFit")
    }
    assert counts == {"UNSCHEDULABLE": 1, "SUCCESS": 1}
    assert measures.preemption_attempts == 1
