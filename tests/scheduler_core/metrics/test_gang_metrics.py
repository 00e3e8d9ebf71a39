"""Metrics of gang members, which are assumed one after the other and permitted together."""

from __future__ import annotations

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.cycle_state import CycleStage, CycleState
from scheduler_core.framework.extension_points import FilterPlugin
from scheduler_core.framework.status import Code, Status, unschedulable
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node
from tests.support.gangs import group, members, settle
from tests.support.scheduling import BARE, DEFAULT_NAME, plugin_set, rig

SECONDS = 1 / 4


class Slow(FilterPlugin):
    """Filter plugin that takes a quarter of a second and accepts every node."""

    name = "Slow"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> None:
        self.handle.clock.advance(SECONDS)  # type: ignore[attr-defined]  # the rig's clock

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("never called")


async def test_a_member_does_not_count_the_time_of_the_others() -> None:
    """Permit's duration excludes the search for later members; the gang's search duration includes all members."""
    made = rig(
        [Slow],
        defaults=Plugins(multi_point=plugin_set("Slow", "NodeResourcesFit", *BARE)),
        groups=[GroupSource.BAYPLAN],
    )
    made.add(node("a"))
    made.scheduler.group_feed.group_changed(group(min_member=3))
    await settle(made, *members(3))
    metrics = made.context.metrics
    metrics.settle()
    stages = metrics.profiles[DEFAULT_NAME].stages.histograms
    assert stages[CycleStage.FILTER][Code.SUCCESS].total == 3 * SECONDS
    assert (stages[CycleStage.PERMIT][Code.SUCCESS].count, stages[CycleStage.PERMIT][Code.SUCCESS].total) == (3, 0)
    assert (metrics.group_algorithm.count, metrics.group_algorithm.total) == (1, 3 * SECONDS)
