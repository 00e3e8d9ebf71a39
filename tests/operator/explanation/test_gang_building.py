"""Tests of explanations of gangs, trees of groups and members, built by the scheduler that would schedule them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from bayplan.explanation.building import explain_gang, explain_pod, named_gang
from bayplan.explanation.documents import GangExplanation, GangVerdict, MemberCounts, Verdict

from scheduler_core.explain.findings import Victim
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import GroupSource, GroupTopology
from tests.support.builders import node, pod
from tests.support.gang_preemption import add_gang, reserve_for_gang, running_pod, small_node, with_pod_groups
from tests.support.gangs import add_groups, composite_group, gang_of, group, leaf_group, member, members, settle
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig, gang_rig, plugin_set, profile
from tests.support.scripted_extender import ScriptedExtender, extender, extender_rig
from tests.support.tables import table

ZONE = GroupTopology("zone")

MISSING = (
    'waiting for pods\'s pod group "train" to appear in scheduling queue: no valid PodGroup default/train of '
    "bayplan.dev exists; create or correct it, or create the pod without label bayplan.dev/pod-group"
)


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler for gangs, without nodes."""
    return gang_rig()


def explanation_of(made: Rig, name: str = "train") -> GangExplanation:
    return explain_gang(made.scheduler, gang_of(made, name))


def add_feasible_gang(made: Rig) -> None:
    made.add(small_node("a", 2, zone="a"))
    add_gang(made, *members(2), of=group(min_member=2, topology=ZONE))


def add_infeasible_gang(made: Rig) -> None:
    made.add(
        small_node("a", 2, zone="a"), small_node("b", 1, zone="b"), small_node("c", 3, zone="c"), running_pod("v", "c")
    )
    add_gang(made, *members(3), of=group(min_member=3, topology=GroupTopology("zone", is_required=True)))


def add_gang_without_topology(made: Rig) -> None:
    made.add(small_node("a"))
    add_gang(made, *members(1), of=group(min_member=1, topology=ZONE))


def add_incomplete_gang(made: Rig) -> None:
    made.add(small_node("a"))
    add_gang(made, *members(1), of=group(min_member=3))


def add_gated_gang(made: Rig) -> None:
    made.add(small_node("a"))
    add_gang(made, member("train-0"), member("train-1", gates=["example.com/quota"]), of=group(min_member=2))


def add_members_without_group(made: Rig) -> None:
    made.add(small_node("a"), *members(2))


def add_gang_without_profile(made: Rig) -> None:
    made.add(small_node("a"))
    add_gang(made, *members(2, scheduler_name="nightly"), of=group(min_member=2))


def add_gang_with_too_large_min_resources(made: Rig) -> None:
    made.add(small_node("a"))
    add_gang(made, *members(2), of=group(min_member=2, min_resources={"cpu": 9000}))


def add_scheduled_gang(made: Rig) -> None:
    add_gang(made, *members(2, node_name="a"), of=group(min_member=2))


def add_finished_gang(made: Rig) -> None:
    add_gang(made, *members(2, node_name="a", phase="Succeeded"), of=group(min_member=2))


MUST_BE_PLACED_TOGETHER = "members that must be placed together"


@table(
    "state, verdict, headline",
    (
        "fits",
        add_feasible_gang,
        GangVerdict.FITS,
        f"gang default/train fits in zone=a: there are nodes for all 2 {MUST_BE_PLACED_TOGETHER}",
    ),
    (
        "does not fit",
        add_infeasible_gang,
        GangVerdict.UNSCHEDULABLE,
        f"gang default/train does not fit: there are nodes for 2 of the 3 {MUST_BE_PLACED_TOGETHER} in zone=a",
    ),
    (
        "no topology label",
        add_gang_without_topology,
        GangVerdict.UNSCHEDULABLE,
        (
            "gang default/train does not fit: no node has the topology's label; label the nodes or change the "
            "PodGroup's topology"
        ),
    ),
    (
        "members are missing",
        add_incomplete_gang,
        GangVerdict.INCOMPLETE,
        "gang default/train is not attempted: 1 of 3 members exist; 2 more are needed.",
    ),
    (
        "gated",
        add_gated_gang,
        GangVerdict.INCOMPLETE,
        (
            "gang default/train is not attempted: 1 of 2 members is gated by scheduling gates: example.com/quota; 2 "
            "members are required."
        ),
    ),
    (
        "no PodGroup",
        add_members_without_group,
        GangVerdict.NO_GROUP,
        "gang default/train with 2 pods waits for its PodGroup: " + MISSING,
    ),
    (
        "no profile",
        add_gang_without_profile,
        GangVerdict.NO_PROFILE,
        'no profile serves schedulerName "nightly" of gang default/train; available profiles: default-scheduler',
    ),
    (
        "minResources are not free",
        add_gang_with_too_large_min_resources,
        GangVerdict.UNSCHEDULABLE,
        (
            "gang default/train does not fit: the group's minResources are not free in the cluster: cpu 9 of which "
            "2 are free"
        ),
    ),
    (
        "placed",
        add_scheduled_gang,
        GangVerdict.PLACED,
        "gang default/train is scheduled: All 2 required members are scheduled.",
    ),
    (
        "finished",
        add_finished_gang,
        GangVerdict.FINISHED,
        "gang default/train has finished: All 2 required members succeeded.",
    ),
)
def test_verdict_of_a_gang(cluster: Rig, state: Callable[[Rig], None], verdict: GangVerdict, headline: str) -> None:
    """The headline has the reason, and the remedy if the user has to act."""
    state(cluster)
    explanation = explanation_of(cluster)
    assert (explanation.verdict, explanation.headline) == (verdict, headline)


def test_members_are_counted(cluster: Rig) -> None:
    """Members are counted by state, together with the number that must be scheduled together."""
    cluster.add(small_node("a"))
    add_gang(
        cluster,
        member("p", node_name="a"),
        member("s", node_name="a", phase="Succeeded"),
        member("f", node_name="a", phase="Failed"),
        member("w"),
        member("g", gates=["wait"]),
        of=group(min_member=4),
    )
    assert explanation_of(cluster).members == MemberCounts(5, 1, 1, 1, 1, 1, 4, 2)


def test_domains_are_ordered_by_fitting_members(cluster: Rig) -> None:
    """Domains are ordered by the number of members that fit, and only the nearest domain has events."""
    add_infeasible_gang(cluster)
    explanation = explanation_of(cluster)
    assert [(place.domain, place.fitting, place.needed) for place in explanation.places] == [
        ("zone=a", 2, 3),
        ("zone=c", 2, 3),
        ("zone=b", 1, 3),
    ]
    following = [place.next_member for place in explanation.places]
    assert [each.name for each in following if each is not None] == [
        "default/train-2",
        "default/train-2",
        "default/train-1",
    ]
    assert [bool(each.unblocking) for each in following if each is not None] == [True, False, False]
    assert all(each.nearest for each in following if each is not None)


def test_preemption_victims_of_a_gang(cluster: Rig) -> None:
    """The explanation reports the victims of a gang's preemption and evicts no pod."""
    cluster.add(small_node("a"), running_pod("v0", "a"), running_pod("v1", "a", 1))
    add_gang(cluster, *members(2, priority=10), of=group(min_member=2))
    explanation = explanation_of(cluster)
    assert explanation.preemption is not None
    assert explanation.preemption.victims == (Victim("default", "v0", 0), Victim("default", "v1", 1))
    assert (explanation.preemption.nodes, explanation.preemption.message) == (("a",), None)
    assert explanation.headline.endswith("; preemption would make room for all")
    assert cluster.writer.deletions == []


async def test_reservations_are_explained(cluster: Rig) -> None:
    """The explanation has the gang's reserved nodes, the terminating pods, and nodes reserved for other gangs."""
    await reserve_for_gang(cluster)
    explanation = explanation_of(cluster, "big")
    assert explanation.reservation is not None
    assert (explanation.reservation.where, explanation.reservation.nodes, explanation.reservation.waits_for) == (
        "a",
        ("a",),
        ("default/v",),
    )
    assert explanation.last_attempt is not None
    assert explanation.last_attempt.reason == "Unschedulable"
    assert "capacity is reserved for it, on a" in explanation.last_attempt.message
    add_gang(cluster, *members(1, "late"), of=group("late", 1))
    (reserved,) = explanation_of(cluster, "late").kept_off
    assert (reserved.gang, reserved.nodes) == ("default/big", ("a",))


def test_members_that_are_scheduled_one_by_one() -> None:
    """With plugin Coscheduling the headline reports that members are scheduled one by one."""
    made = gang_rig(serve=False)
    enabled = default_plugins().model_copy(update={"permit": plugin_set("Coscheduling")})
    made.serve(profile(plugins=enabled))
    made.add(small_node("a"))
    add_gang(made, *members(2), of=group(min_member=2))
    explanation = explanation_of(made)
    assert (explanation.verdict, explanation.scheduler_name) == (GangVerdict.ONE_BY_ONE, "default-scheduler")
    assert "profile default-scheduler enables plugin Coscheduling; explain a pod instead" in explanation.headline


def test_extenders_are_not_called() -> None:
    """Extenders are not called, and a notice reports it."""
    client = ScriptedExtender()
    made = with_pod_groups(extender_rig((extender(), client), defaults=default_plugins()))
    add_feasible_gang(made)
    explanation = explanation_of(made)
    assert explanation.verdict is GangVerdict.FITS
    assert explanation.notices == ("Extenders are not called here, unlike in the running operator: http://extender.",)


def test_a_member_of_a_gang_that_fits(cluster: Rig) -> None:
    """The node of a member is that of the group cycle."""
    add_feasible_gang(cluster)
    explanation = explain_pod(cluster.scheduler, gang_of(cluster).pods["uid-of-default-train-1"])
    assert (explanation.verdict, explanation.node) == (Verdict.FITS, "a")
    assert explanation.headline.startswith(
        "pod default/train-1 would be scheduled to node a with its gang; gang default/train fits"
    )
    assert explanation.gang == explanation_of(cluster)


@table(
    "state, verdict",
    ("does not fit", add_infeasible_gang, Verdict.UNSCHEDULABLE),
    ("members are missing", add_incomplete_gang, Verdict.GATED),
)
def test_a_member_waits_with_its_gang(cluster: Rig, state: Callable[[Rig], None], verdict: Verdict) -> None:
    """A member of a gang that does not fit has no node, and its scores are those of the pod alone."""
    state(cluster)
    explanation = explain_pod(cluster.scheduler, gang_of(cluster).pods["uid-of-default-train-0"])
    assert (explanation.verdict, explanation.node, explanation.preemption) == (verdict, None, None)
    assert explanation.gang is not None
    assert explanation.headline == f"pod default/train-0 waits for its gang; {explanation.gang.headline}"
    assert explanation.notices[0] == "nodes and scores are those of this pod alone, as if it had no gang"
    assert explanation.scores


@pytest.mark.parametrize("is_queued", [True, False], ids=["in the queue", "not in the queue"])
def test_a_member_whose_group_is_missing(cluster: Rig, *, is_queued: bool) -> None:
    """A member whose PodGroup is missing is gated with a remedy, and no node is evaluated."""
    add_members_without_group(cluster)
    target = members(3)[0 if is_queued else 2]
    explanation = explain_pod(cluster.scheduler, target)
    assert (explanation.verdict, explanation.node, explanation.scores) == (Verdict.GATED, None, ())
    assert explanation.message == MISSING
    assert explanation.headline == f"pod {target.key} is gated by GangScheduling: {MISSING}"


def test_an_infeasible_member_beyond_the_quorum(cluster: Rig) -> None:
    """The headline of an infeasible member beyond the quorum reports that the gang fits without it."""
    cluster.add(small_node("a"))
    add_gang(cluster, *members(3), of=group(min_member=2))
    explanation = explain_pod(cluster.scheduler, gang_of(cluster).pods["uid-of-default-train-2"])
    assert (explanation.verdict, explanation.node) == (Verdict.UNSCHEDULABLE, None)
    assert explanation.headline.startswith(
        "pod default/train-2 has no node in the placement of its gang, which fits without it; "
    )


async def test_a_member_that_joins_a_scheduled_gang(cluster: Rig) -> None:
    """A member that joins a scheduled gang is explained as a single pod in the domain of the others."""
    cluster.add(small_node("a", 2, zone="a"), small_node("b", 4, zone="b"))
    add_gang(cluster, *members(2), of=group(min_member=2, topology=ZONE))
    await settle(cluster)
    late = member("late")
    cluster.add(late)
    explanation = explain_pod(cluster.scheduler, late)
    assert explanation.verdict is Verdict.UNSCHEDULABLE
    assert {each.plugin for each in explanation.rejections} == {"GangScheduling", "NodeResourcesFit"}
    assert explanation.gang is not None
    assert explanation.gang.verdict is GangVerdict.PLACED


def test_a_pod_without_a_gang(cluster: Rig) -> None:
    """The explanation of a pod without a gang has no gang."""
    cluster.add(small_node("a"))
    assert explain_pod(cluster.scheduler, pod()).gang is None


@table(
    "source, is_found",
    ("any API", None, True),
    ("API of the gang", GroupSource.BAYPLAN, True),
    ("another API", GroupSource.NATIVE, False),
)
def test_gangs_by_name(cluster: Rig, source: GroupSource | None, is_found: bool) -> None:
    """A gang is found by name alone, or by name and API."""
    add_feasible_gang(cluster)
    assert (named_gang(cluster.context, "default", "train", source) is not None) is is_found


def test_the_document_has_the_documented_fields(cluster: Rig) -> None:
    """The document has the fields of ``docs/why-pending.md``."""
    add_infeasible_gang(cluster)
    document: dict[str, Any] = msgspec.to_builtins(explanation_of(cluster))
    assert list(document) == [
        "namespace",
        "name",
        "api",
        "schedulerName",
        "verdict",
        "headline",
        "apiVersion",
        "phase",
        "members",
        "message",
        "domain",
        "placement",
        "places",
        "preemption",
        "newNodes",
        "reservation",
        "keptOff",
        "lastAttempt",
        "notices",
        "profileRevision",
    ]
    assert list(document["members"]) == [
        "existing",
        "gated",
        "waiting",
        "placed",
        "succeeded",
        "failed",
        "minMember",
        "needed",
    ]
    place = document["places"][0]
    assert list(place) == ["domain", "fitting", "needed", "isTried", "nextMember"]
    assert list(place["nextMember"]) == ["name", "message", "nearest", "unblocking"]
    preemption = ["victims", "nodes", "awaited", "pdbViolations", "domain", "message", "waitsUntil"]
    assert list(document["preemption"]) == preemption
    assert list(document["newNodes"]) == ["helpful", "tried", "isComplete"]


def test_the_domain_is_that_of_the_group_cycle(cluster: Rig) -> None:
    """The explained domain is that of the group cycle, although another domain has more free capacity."""
    cluster.add(small_node("a1", 2, zone="a"), small_node("b", 5, zone="b"))
    cluster.add(
        node("a2", labels={"zone": "a"}, allocatable={"cpu": "2", "pods": "99"}, taints=["for=others:NoSchedule"])
    )
    add_gang(cluster, *members(4), of=group(min_member=2, topology=GroupTopology("zone", prefers_allocated=True)))
    found = explanation_of(cluster)
    assert (found.domain, {each.node for each in found.placement}, found.places) == ("zone=b", {"b"}, ())


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
