"""Tests of explanations of pods, built by the scheduler that would schedule them, also while nodes are reserved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
from bayplan.explanation.building import explain_gang, explain_pod
from bayplan.explanation.documents import Explanation, NodeCounts, PluginRejections, ReasonCount, Verdict
from bayplan.resources.resource_model import format_time

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import Extender, PreemptionSettings, ProfileConfig
from scheduler_core.explain.findings import Lack, NodeLacks, Victim
from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.framework.extension_points import NodeFilterPlugin, Shortage
from scheduler_core.framework.status import Status
from scheduler_core.gangs.held_room import HeldPod, HeldRoom, Holder, OwnPods, Terms
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import ForeignGangs, foreign_gang
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gang_traffic import PATIENCE, Traffic
from tests.support.gangs import add_groups, group, member
from tests.support.preemption import budget
from tests.support.presence import present
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, default_rig, gang_rig, plugin_set, rig
from tests.support.tables import table


def rig_with(*objects: Node | Pod) -> Rig:
    """Return a scheduler with the default plugins and these objects."""
    return default_rig(*objects)


def explanation_of(made: Rig, target: Pod) -> Explanation:
    return explain_pod(made.scheduler, target)


def test_a_feasible_pod() -> None:
    """The explanation has the node, the tied nodes and the scores."""
    explanation = explanation_of(rig_with(node("a"), node("b"), pod("p", node_name="a", requests={"cpu": "2"})), pod())
    assert (explanation.verdict, explanation.node, explanation.tied, explanation.message) == (
        Verdict.FITS,
        "b",
        ("b",),
        None,
    )
    assert explanation.headline == "pod default/pod would be scheduled to node b; feasible nodes: 2 of 2"
    assert [score.node for score in explanation.scores] == ["b", "a"]
    assert explanation.scores[0].total > explanation.scores[1].total
    for score in explanation.scores:
        assert score.total == sum(part.weighted for part in score.plugins.values())
    assert (explanation.unblocking, explanation.nearest, explanation.preemption) == ((), (), None)


def test_a_tie_is_resolved_as_in_the_next_attempt() -> None:
    """Of tied nodes, the explanation has the node that the next scheduling cycle selects."""
    waiting = pod()
    made = rig_with(*(node(f"n{number}") for number in range(9)), waiting)
    explanation = explanation_of(made, waiting)
    assert len(explanation.tied) == 9
    assert "one of 9 nodes with the highest score" in explanation.headline
    attempt = present(made.decide())
    assert attempt.node_name == explanation.node


def test_an_unschedulable_pod() -> None:
    """The explanation has rejections by plugin, nearest misses with amounts, and the message of the event."""
    objects: list[Node | Pod] = [
        node("a", allocatable={"cpu": "1", "memory": "1Gi", "pods": "9"}),
        node("b", allocatable={"cpu": "500m", "memory": "64Gi", "pods": "9"}),
        node("c", unschedulable=True),
    ]
    explanation = explanation_of(rig_with(*objects), pod(requests={"cpu": "2", "memory": "2Gi"}))
    assert (explanation.verdict, explanation.node, explanation.nodes) == (Verdict.UNSCHEDULABLE, None, NodeCounts(3, 0))
    assert explanation.headline == "pod default/pod is unschedulable; feasible nodes: 0 of 3"
    assert explanation.rejections == (
        PluginRejections(
            "NodeResourcesFit", 2, (ReasonCount("Insufficient cpu", 2), ReasonCount("Insufficient memory", 1))
        ),
        PluginRejections("NodeUnschedulable", 1, (ReasonCount("node(s) were unschedulable", 1),)),
    )
    fit = Lack("NodeResourcesFit", ("Insufficient cpu",), False, (Shortage("cpu", 2000, 500),))
    assert [miss.node for miss in explanation.nearest] == ["c", "b", "a"]
    assert explanation.nearest[1] == NodeLacks("b", (fit,))
    assert explanation.message is not None
    assert explanation.message.startswith(
        "0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 "
    )
    assert explanation.unblocking


def test_preemption_is_a_dry_run() -> None:
    """Node, victims and PodDisruptionBudget violations are reported without evicting or nominating."""
    victim = pod("victim", node_name="n", requests={"cpu": "3"}, labels={"app": "a"}, priority=1)
    made = rig_with(node("n"), victim)
    made.context.cache.columns.disruption_budgets.assign(budget("guard", {"app": "a"}, 0))
    explanation = explanation_of(made, pod(requests={"cpu": "2"}, priority=10))
    assert explanation.preemption is not None
    assert explanation.preemption.node == "n"
    assert explanation.preemption.victims == (Victim("default", "victim", 1),)
    assert (
        explanation.preemption.pdb_violations,
        explanation.preemption.candidates,
        explanation.preemption.message,
    ) == (1, 1, None)
    assert explanation.headline.endswith("; preemption would make room on node n")
    assert made.writer.patches == []
    assert made.context.cache.get(victim.metadata.uid) is not None
    assert not list(made.queue.nominator.nodes())


def test_preemption_that_does_not_help() -> None:
    """If preemption does not help, the explanation has the plugin's message."""
    explanation = explanation_of(rig_with(node("n")), pod(requests={"cpu": "64"}))
    assert explanation.preemption is not None
    assert explanation.preemption.node is None
    assert explanation.preemption.message is not None
    assert "Preemption is not helpful for scheduling" in explanation.preemption.message


@table(
    "target, verdict, headline",
    (
        "gated",
        pod(gates=["a/b"]),
        Verdict.GATED,
        "pod default/pod is gated by SchedulingGates: waiting for scheduling gates: [a/b]",
    ),
    (
        "no profile",
        pod(scheduler_name="nightly"),
        Verdict.NO_PROFILE,
        'no profile serves schedulerName "nightly" of pod default/pod; available profiles: default-scheduler',
    ),
    (
        "terminated",
        pod(phase="Succeeded", node_name="n"),
        Verdict.ENDED,
        "pod default/pod has terminated; it is not scheduled",
    ),
    (
        "scheduled by another scheduler",
        pod(scheduler_name="other", node_name="n"),
        Verdict.PLACED,
        'pod default/pod is scheduled to node n; no profile serves its schedulerName "other"',
    ),
)
def test_pods_for_which_no_node_is_evaluated(target: Pod, verdict: Verdict, headline: str) -> None:
    """The explanation of a pod whose nodes are not evaluated has only a headline."""
    explanation = explanation_of(rig_with(node("n")), target)
    assert (explanation.verdict, explanation.headline, explanation.scores, explanation.nearest) == (
        verdict,
        headline,
        (),
        (),
    )


def test_a_cluster_without_nodes() -> None:
    """The headline reports that the cluster has no nodes, and a new node would make the pod fit."""
    explanation = explanation_of(rig_with(), pod())
    assert explanation.headline == "pod default/pod is unschedulable: the cluster has no nodes"
    assert explanation.message == "no nodes available to schedule pods"
    assert [(event.what, event.fits_on) for event in explanation.unblocking] == [("a node added", "new-node")]


def test_a_bound_pod_is_explained_as_if_it_were_scheduled_now() -> None:
    """A bound pod is explained without its own requests, and the columns are unchanged afterwards."""
    placed = pod("placed", node_name="n", requests={"cpu": "3"})
    made = rig_with(node("n"), placed, pod("other", node_name="n"))
    columns = made.context.cache.columns
    before = (columns.requested.copy(), list(columns.pods[0]))
    explanation = explanation_of(made, placed)
    assert (explanation.verdict, explanation.node, explanation.headline) == (
        Verdict.PLACED,
        "n",
        "pod default/placed is already scheduled to node n",
    )
    assert [score.node for score in explanation.scores] == ["n"]
    assert "dry run" not in explanation.headline
    assert "a dry run that schedules it again now" in explanation.notices[0]
    assert (columns.requested == before[0]).all()
    assert list(columns.pods[0]) == before[1]


def test_an_assumed_pod_is_reported_as_being_bound() -> None:
    waiting = pod("fresh")
    made = rig_with(node("n"), waiting)
    assert made.decide() is not None
    explanation = explanation_of(made, waiting)
    assert (explanation.verdict, explanation.node) == (Verdict.PLACED, "n")
    assert explanation.headline == "pod default/fresh is being bound to node n"


class Faulty(NodeFilterPlugin):
    """Plugin that raises an error."""

    name = "Faulty"

    def filter_node(self, state: object, pod: object, node: object) -> Status:
        raise RuntimeError("out of luck")


def test_a_plugin_failure_is_reported() -> None:
    """The headline names the plugin that failed."""
    made = rig((Faulty,), defaults=Plugins(multi_point=plugin_set("Faulty", *BARE)))
    made.add(node("n"))
    explanation = explanation_of(made, pod())
    assert explanation.verdict is Verdict.ERROR
    assert 'running "Faulty" filter plugin' in explanation.headline
    assert explanation.unblocking == ()


def test_a_nominated_node_is_noted() -> None:
    """A notice reports that only the nominated node was evaluated."""
    explanation = explanation_of(rig_with(node("a"), node("b")), pod(nominated_node="b"))
    assert explanation.node == "b"
    assert explanation.notices == ("node b is nominated for the pod; no other node was evaluated",)


def test_lists_are_limited() -> None:
    """Of nine nodes the five with the highest scores are listed, and the five nearest misses."""
    made = rig_with(*(node(f"n{number}") for number in range(9)))
    assert len(explanation_of(made, pod()).scores) == 5
    assert len(explanation_of(made, pod(requests={"cpu": "9"})).nearest) == 5


def test_the_document_has_the_documented_fields() -> None:
    """The document has the fields of ``docs/why-pending.md``."""
    document: dict[str, Any] = msgspec.to_builtins(explanation_of(rig_with(node("n")), pod(requests={"cpu": "64"})))
    assert list(document) == [
        "namespace",
        "name",
        "schedulerName",
        "verdict",
        "headline",
        "node",
        "tied",
        "message",
        "nodes",
        "rejections",
        "nearest",
        "scores",
        "preemption",
        "unblocking",
        "newNodes",
        "devices",
        "notices",
        "gang",
        "profileRevision",
    ]
    assert list(document["nearest"][0]["lacks"][0]) == ["plugin", "reasons", "preemptionMayHelp", "amounts", "details"]
    assert list(document["preemption"]) == ["node", "victims", "pdbViolations", "candidates", "message", "waitsUntil"]
    assert list(document["newNodes"]) == ["helpful", "tried", "isComplete"]
    assert list(document["unblocking"][0]) == ["what", "event", "plugins", "fitsOn"]


def test_extenders_are_not_called() -> None:
    """Extenders are not called, and a notice reports it."""
    made = rig_with(node("a"))
    extender = Extender.model_validate({"urlPrefix": "http://licences.example.com", "filterVerb": "filter"})
    config = ProfileConfig(scheduler_name=pod().spec.scheduler_name, extenders=(extender,))
    made.scheduler.activate([made.scheduler.build(config)])
    notice = "Extenders are not called here, unlike in the running operator: http://licences.example.com."
    assert notice in explanation_of(made, pod()).notices


@pytest.mark.parametrize("handling", get_args(ForeignGangs))
def test_an_explanation_names_the_mark(handling: ForeignGangs) -> None:
    """The explanations of a waiting and of a bound pod name the mark, unless marks are ignored."""
    made = default_rig(node("n"), options=SchedulerOptions(foreign_gangs=handling))
    marked = pod("a", labels={"pod-group-name": "job-1"})
    bound = msgspec.structs.replace(marked, spec=msgspec.structs.replace(marked.spec, node_name="n"))
    text = foreign_gang(marked.metadata)
    for each in (marked, bound):
        made.scheduler.feed.pod_added(each)
        found = explain_pod(made.scheduler, each)
        named = any(text in notice for notice in (*found.notices, found.message or ""))
        assert named is (handling != "Ignore")
        assert (found.verdict is Verdict.GATED) is (handling == "Hold" and each is marked)


@table("age, until", ("within the delay", 20.0, 40), ("after it", 80.0, None))
async def test_a_delayed_preemption(age: float, until: int | None) -> None:
    """The explanation has the time until which the profile waits for a new node."""
    made = default_rig(serve=False)
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=PreemptionSettings(delay_seconds=60)))
    waiting = pod("high", requests={"cpu": "2"}, priority=9)
    made.add(node("full", allocatable={"cpu": "2", "pods": "9"}), running_pod("low", "full"), waiting)
    async with made.running():
        await made.scheduler.until_idle()
    made.clock.advance(age)
    plan = present(explanation_of(made, waiting).preemption)
    expected = None if until is None else format_time(made.clock.wall() + timedelta(seconds=until))
    assert (plan.node, plan.waits_until) == ("full", expected)


async def reserved() -> tuple[Traffic, list[Pod], Pod]:
    """Return a cluster with nodes reserved for a gang of two, the gang, and a pod that is too large for every node."""
    traffic = Traffic()
    traffic.nodes({"a": 8, "b": 8, "c": 8})
    for name, cpu in (("a", 4), ("b", 4), ("c", 5)):
        traffic.add_running(name, cpu)
    too_large = traffic.add_pending(100)
    await traffic.settle()
    gang = traffic.gang("strict", 2, 7)
    await traffic.reserve("strict")
    return traffic, gang, too_large


def explain_gangs(traffic: Traffic, gang: list[Pod], too_large: Pod) -> None:
    del gang, too_large
    explain_gang(traffic.rig.scheduler, traffic.gang_named("strict"))


def explain_member(traffic: Traffic, gang: list[Pod], too_large: Pod) -> None:
    del too_large
    explain_pod(traffic.rig.scheduler, gang[0])


def explain_other(traffic: Traffic, gang: list[Pod], too_large: Pod) -> None:
    """Explain the pod that is too large."""
    del gang
    explain_pod(traffic.rig.scheduler, too_large)


@pytest.mark.parametrize("explain", [explain_gangs, explain_member, explain_other])
async def test_the_end_of_a_reservation_activates_no_explained_pod(
    explain: Callable[[Traffic, list[Pod], Pod], None],
) -> None:
    """A pod that no reservation rejected in its attempt is not retried when one ends, although it was explained."""
    traffic, gang, too_large = await reserved()
    assert traffic.rig.place_of(too_large) == "unschedulable"
    explain(traffic, gang, too_large)
    traffic.rig.scheduler.group_feed.group_deleted(traffic.gang_named("strict").key)
    assert not traffic.rig.scheduler.reservations.by_gang
    assert traffic.rig.place_of(too_large) == "unschedulable"


async def test_a_member_of_a_gang_with_a_reservation() -> None:
    """A member is explained with the nodes that are reserved for its own gang."""
    traffic, gang, _ = await reserved()
    explanation = explain_pod(traffic.rig.scheduler, gang[0])
    assert explanation.verdict is Verdict.UNSCHEDULABLE
    assert explanation.gang is not None
    assert explanation.gang.reservation is not None
    assert all("reserved" not in reason.reason for entry in explanation.rejections for reason in entry.reasons)


async def test_a_feasible_member_of_a_gang_with_a_reservation() -> None:
    """A member that fits on a node reserved for its gang has that node, and the scores of the reserved nodes."""
    traffic, _, _ = await reserved()
    late = member("strict-late", "strict", requests={"cpu": "1"})
    traffic.rig.add(late)
    explanation = explain_pod(traffic.rig.scheduler, late)
    assert explanation.nodes.feasible == 3
    assert {score.node for score in explanation.scores} == {"a", "b", "c"}


def test_room_that_is_held_for_a_reservation() -> None:
    """A pod that it blocks is explained with the nodes, the NodeReservation and its end."""
    made = gang_rig(small_node("a"))
    nodes = made.context.cache.columns
    slots = [HeldPod(nodes.compile_pod(pod("held", requests={"cpu": "2"})), "", "a")]
    holder = Holder("NodeReservation", "ml", "train", "uid-of-train", OwnPods("ml", (("app", "train"),)))
    assert made.scheduler.reservations.hold(HeldRoom(holder, slots, nodes, Terms(until=made.clock.now() + 60)))
    other = pod("other", requests={"cpu": "1"})
    made.add(other)
    expected = "room on a is reserved for NodeReservation ml/train until 2026-01-01T00:01:00Z"
    assert expected in explain_pod(made.scheduler, other).notices


async def test_proposed_nodes_are_no_change_for_gangs() -> None:
    """Nodes that an explanation adds and removes again are no reason to plan a reservation again."""
    traffic = Traffic()
    traffic.nodes({"a": 4})
    traffic.add_running("a", 4)
    traffic.gang("strict", 2, 7)
    await traffic.settle()
    await traffic.step(PATIENCE + 1.0)
    gang, reservations = traffic.gang_named("strict"), traffic.rig.scheduler.reservations
    assert reservations.is_hopeless(gang)
    explanation = explain_pod(traffic.rig.scheduler, pod("other", requests={"cpu": "3"}))
    assert NODE_ADD.name in {event.event for event in explanation.unblocking}
    assert reservations.is_hopeless(gang)
    traffic.nodes({"b": 1})
    assert not reservations.is_hopeless(gang)


def test_room_that_is_held_for_a_lost_member() -> None:
    """A pod that it blocks is explained with the node, the lost member and the end of the hold."""
    made = gang_rig()
    add_groups(made, group(hold_seconds=60.0))
    made.add(*(small_node(name) for name in "ab"))
    first, second = (member(name, requests={"cpu": "2"}, node_name=node) for name, node in (("m-0", "a"), ("m-1", "b")))
    made.add(first, second)
    made.scheduler.feed.pod_deleted(first)
    other = pod("other", requests={"cpu": "1"})
    made.add(other)
    held = "room on a is held for default/m-0 until 2026-01-01T00:01:00Z"
    assert held in explain_pod(made.scheduler, other).notices
    replacement = member("m-0", requests={"cpu": "2"}, uid="uid-of-replacement")
    made.add(replacement)
    explanation = explain_pod(made.scheduler, replacement)
    assert explanation.node == "a"
    assert "room is held for the pod; no other node was evaluated" in explanation.notices
