"""Tests of explanations of gangs in a tree of groups."""

from __future__ import annotations

from bayplan.explanation.building import explain_gang, named_gang
from bayplan.explanation.documents import GangVerdict

from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.gangs import add_groups, composite_group, leaf_group
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig


def _cluster(quorum: int) -> Rig:
    """Return a scheduler with a root and two gangs of one below it, without nodes."""
    made = default_rig(groups=[GroupSource.NATIVE, GroupSource.COMPOSITE])
    add_groups(made, composite_group("root", quorum), leaf_group("a", "root"), leaf_group("b", "root"))
    return made


async def test_a_gang_below_a_composite_group() -> None:
    """A gang in a tree waits for the quorum of the root, and the whole tree is dry-run for it."""
    cluster = _cluster(2)
    victim = pod("victim", node_name="n", requests={"cpu": "1"}, priority=-9)
    cluster.add(small_node("n", 2), victim, pod("a-1", requests={"cpu": "1"}, group="a"))
    gang = present(named_gang(cluster.scheduler.context, "default", "a"))
    assert 'composite pod group "root" tree to meet quorum.' in explain_gang(cluster.scheduler, gang).headline
    cluster.add(pod("b-1", requests={"cpu": "1"}, group="b"))
    found = explain_gang(cluster.scheduler, gang)
    assert (found.verdict, found.placement) == (GangVerdict.UNSCHEDULABLE, ())
    assert found.headline == (
        'gang default/a does not fit: composite pod group "root": minCount (2) cannot be satisfied: 1 scheduled, '
        "0 remaining; preemption would make room for all"
    )
    assert found.preemption is not None
    assert [each.name for each in found.preemption.victims] == ["victim"]
    other = present(named_gang(cluster.scheduler.context, "default", "b"))
    (place,) = explain_gang(cluster.scheduler, other).places
    assert place.next_member is not None
    assert place.next_member.message == "0/1 nodes are available: 1 Insufficient cpu."
    cluster.scheduler.feed.pod_deleted(victim)
    fitting = explain_gang(cluster.scheduler, gang)
    assert fitting.verdict is GangVerdict.FITS
    assert [(each.member, each.node) for each in fitting.placement] == [("default/a-1", "n")]
    assert cluster.bound == {}


async def test_an_infeasible_gang_in_a_feasible_tree() -> None:
    """The headline of an infeasible gang reports that the tree fits without it."""
    cluster = _cluster(1)
    cluster.add(
        small_node("n", 2), pod("a-1", requests={"cpu": "1"}, group="a"), pod("b-1", requests={"cpu": "9"}, group="b")
    )
    gang = present(named_gang(cluster.scheduler.context, "default", "b"))
    found = explain_gang(cluster.scheduler, gang)
    assert found.verdict is GangVerdict.UNSCHEDULABLE
    assert found.headline.startswith(
        'gang default/b does not fit: other groups of composite pod group "root" fit without it: minCount (1) '
    )
