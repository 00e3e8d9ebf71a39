"""Tests of the panel of RebalancePlans."""

from __future__ import annotations

from dataclasses import replace

from bayplan.page.resource_panels import PlansPanel

from tests.support.builders import node, pod
from tests.support.page_world import PageWorld
from tests.support.rebalance_plans import plan_object
from tests.support.tables import table


async def test_without_plans() -> None:
    """A process that makes no plans has no panel."""
    world = PageWorld()
    assert not (await PlansPanel(world.sources).build(world.turns)).is_served


@table(
    "phase, nodes",
    ("moves that are not made", "Moving", [("a", 2, 1), ("b", 1, 2)]),
    ("a dry run", "Planned", [("a", 2, 1), ("b", 1, 2)]),
    ("a plan that has stopped", "Stopped", []),
)
async def test_nodes_before_and_after(phase: str, nodes: list[tuple[str, int, int]]) -> None:
    """A plan shows the pods of each node now, and after the moves that are not made yet."""
    world = PageWorld()
    world.rig.add(*(node(name, allocatable={"cpu": "9", "memory": "9Gi", "pods": "10"}) for name in "ab"))
    world.add(pod("p", node_name="a"), pod("q", node_name="a"), pod("moved", node_name="b"))
    plan = plan_object(
        "night",
        ("default/moved", "a", "b", "Moved"),
        ("default/p", "a", "b", "Pending"),
        phase=phase,
        moved=1,
        leftAlone=[{"reason": "it has local volumes", "count": 1, "pods": ["default/q"]}],
    )
    document = await PlansPanel(replace(world.sources, plans=lambda: [plan])).build(world.turns)
    (shown,) = document.plans
    assert document.is_served
    assert [(each.node, each.pods_before, each.pods_after) for each in shown.nodes] == nodes
    assert [(left.reason, left.pods) for left in shown.state.left_alone] == [("it has local volumes", ("default/q",))]
    assert shown.command == "kubectl get rebalanceplan night -o yaml"
