"""What is counted of the members of a gang, which are placed one after the other and permitted together."""

from __future__ import annotations

from scheduler_core.config.plugins_config import Plugins
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import Point
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
    """Takes a quarter of a second; lets every node pass."""

    name = "Slow"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> None:
        self.handle.clock.advance(SECONDS)  # type: ignore[attr-defined]  # the rig's clock

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("never asked")


async def test_waiting_for_the_others_is_nobodys_time() -> None:
    """A member's Permit does not last as long as the placing of those after it; the gang's search lasts all of it."""
    made = rig([Slow], defaults=Plugins(multi_point=plugin_set("Slow", "NodeResourcesFit", *BARE)))
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    made.add(node("a"))
    made.scheduler.group_feed.group_changed(group(min_member=3))
    made.add(*members(3))
    await settle(made)
    measures = made.context.measures
    measures.settle()
    points = measures.profile(DEFAULT_NAME).points
    assert points[Point.FILTER][Code.SUCCESS].total == 3 * SECONDS
    assert (points[Point.PERMIT][Code.SUCCESS].count, points[Point.PERMIT][Code.SUCCESS].total) == (3, 0)
    assert (measures.group_algorithm.count, measures.group_algorithm.total) == (1, 3 * SECONDS)
