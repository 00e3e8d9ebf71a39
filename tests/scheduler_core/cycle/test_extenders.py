"""Decisions with extenders that filter, score and bind as in kube-scheduler, and the messages of rejected pods."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.framework.cluster_events import NODE_DELETE, UNSCHEDULED_POD_ADD, ClusterEvent
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.ports import Binding, ExtenderVerdict
from scheduler_core.scheduler import SchedulerPorts
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import BARE, Rig, configured, plugin_set, rig
from tests.support.scripted_extender import (
    ScriptedExtender,
    decide,
    extended_profile,
    extended_rig,
    extender,
    leaves,
    place,
)

POD = pod("web", requests={"cpu": "1"})


def only_on(name: str) -> Affinity:
    """Node affinity to one node by name, so that PreFilter excludes all others."""
    term = NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", (name,)),))
    return Affinity(NodeAffinity(NodeSelector((term,))))


FITTING = Plugins(multi_point=plugin_set(*BARE, "NodeResourcesFit", "NodeUnschedulable"))


def made_with(*clients: ScriptedExtender, wanted: Pod = POD, defaults: Plugins | None = None, **fields: object) -> Rig:
    """Return a scheduler with nodes a, b and c, one pod, and extenders that share ``fields``."""
    made = extended_rig(*((extender(client.url, **fields), client) for client in clients), defaults=defaults)
    made.add(*(node(name) for name in "abc"), wanted)
    return made


# -- filter ---------------------------------------------------------------------------------------------------------


async def test_a_pod_goes_where_filters_and_extenders_let_it() -> None:
    """Extenders receive only nodes that pass the filters."""
    client = ScriptedExtender(on_filter=leaves("b"))
    made = extended_rig((extender(), client), defaults=FITTING)
    made.add(node("a", unschedulable=True), node("b"), node("c"), POD)
    assert await place(made) == "b"
    assert client.asked == [("filter", ("b", "c"))]
    assert made.bound == {"web": "b"}


async def test_one_node_that_is_left_is_not_scored() -> None:
    """Two are."""
    client = ScriptedExtender(on_filter=leaves("b"))
    assert await place(made_with(client)) == "b"
    client = ScriptedExtender(on_filter=leaves("b", "c"), scores={"c": 1})
    assert await place(made_with(client)) == "c"
    assert client.asked[1:] == [("prioritize", ("b", "c"))]


@pytest.mark.parametrize(
    ("script", "message", "rejected_by"),
    [
        pytest.param(
            leaves(), "0/4 nodes are available: 1 node(s) were unschedulable.", {"NodeUnschedulable"}, id="silent"
        ),
        pytest.param(
            leaves(failed={"a": "no licence", "b": "no licence"}, hopeless={"c": "no dongle"}),
            "0/4 nodes are available: 1 no dongle, 1 node(s) were unschedulable, 2 no licence.",
            {"NodeUnschedulable"},
            id="with reasons",
        ),
        pytest.param(
            leaves(failed={"off": "no licence", "ghost": "gone"}),
            "0/4 nodes are available: 1 no licence.",
            {"NodeUnschedulable"},
            id="of nodes that it was not asked about",
        ),
    ],
)
async def test_a_pod_that_extenders_reject_is_reported(script: object, message: str, rejected_by: set[str]) -> None:
    """Their reasons are listed with those of plugins, and they count as rejecting."""
    client = ScriptedExtender(on_filter=script)  # type: ignore[arg-type]  # rows of a table
    made = made_with(client, defaults=FITTING)
    made.add(node("off", unschedulable=True))
    assert await decide(made) is None
    assert made.writer.events[-1].note == message
    assert (made.condition.reason, made.condition.message) == ("Unschedulable", message)
    queued = made.queue.find(POD.metadata.uid)
    assert queued is not None
    assert queued.rejected_by == {"Extender", *rejected_by}


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        pytest.param({}, "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity].", id="silent"),
        pytest.param(
            {"b": "full"},
            "0/3 nodes are available: 1 full, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
            id="with a reason",
        ),
    ],
)
async def test_a_node_left_out_in_silence_counts_as_one_that_pre_filter_left_out(
    failed: dict[str, str], message: str
) -> None:
    """kube-scheduler uses one status for all nodes without a reason."""
    client = ScriptedExtender(on_filter=leaves(failed=failed))
    wanted = pod("web", affinity=only_on("b"))
    made = made_with(client, wanted=wanted, defaults=Plugins(multi_point=plugin_set(*BARE, "NodeAffinity")))
    assert await decide(made) is None
    assert client.asked == [("filter", ("b",))]
    assert made.condition.message == message


async def test_extenders_that_leave_a_node_reject_nobody() -> None:
    """A later failure is not attributed to them."""
    journal = Journal(answers={"Rec.reserve": ServerUnavailableError("x")})
    made = extended_rig((extender(), ScriptedExtender(on_filter=leaves("a"))), plugins=[recorder("Rec", journal)])
    made.add(node("a"), node("b"), POD)
    assert await decide(made) is None
    queued = made.queue.find(POD.metadata.uid)
    assert queued is not None
    assert "Extender" not in queued.rejected_by


async def test_a_filter_error_ends_the_attempt() -> None:
    """It is an error, which is retried after backoff and without preemption."""
    client = ScriptedExtender()
    client.fails("filter", "too late")
    made = made_with(client)
    assert await decide(made) is None
    assert (made.condition.reason, made.condition.message) == ("SchedulerError", "extender http://extender: too late")
    assert made.place(POD) == "errorBackoff"
    assert client.verbs() == ["filter"]


async def test_an_error_of_an_extender_that_may_be_ignored_is_ignored() -> None:
    """It is called after the others, and the nodes that they accept stay feasible."""
    good, bad = ScriptedExtender("good", leaves("b")), ScriptedExtender("bad")
    bad.fails("filter")
    made = extended_rig((extender("bad", ignorable=True), bad), (extender("good"), good))
    made.add(node("a"), node("b"), POD)
    assert await place(made) == "b"
    assert bad.asked == [("filter", ("b",))]


async def test_no_extender_is_called_for_an_infeasible_pod() -> None:
    """Neither if PreFilter rejects the pod, nor if there are no nodes."""
    client = ScriptedExtender()
    made = made_with(client, wanted=pod("big", requests={"cpu": "99"}), defaults=FITTING)
    assert await decide(made) is None
    made = extended_rig((extender(), client))
    made.add(POD)
    assert await decide(made) is None
    assert made.writer.events[-1].note == "no nodes available to schedule pods"
    assert client.asked == []


async def test_a_client_that_breaks_its_contract_is_an_error_of_the_pod() -> None:
    """The cycle ends, and the pod is retried."""
    client = ScriptedExtender(faults={"filter": ZeroDivisionError("boom")})
    made = made_with(client)
    assert await decide(made) is None
    assert "internal error: ZeroDivisionError: boom" in made.condition.message
    assert (made.place(POD), made.context.suspension.is_on) == ("errorBackoff", False)


# -- the nominated node ---------------------------------------------------------------------------------------------

NOMINATED = pod("web", requests={"cpu": "1"}, nominated_node="b")


async def test_the_nominated_node_is_filtered_first() -> None:
    """If the extenders accept it, it is chosen."""
    client = ScriptedExtender()
    made = made_with(client, wanted=NOMINATED)
    assert await place(made) == "b"
    assert client.asked == [("filter", ("b",))]


async def test_a_nominated_node_that_extenders_refuse_is_one_of_all_then() -> None:
    """Its reason stays, unless a later call adds one."""
    answers = [ExtenderVerdict((), {"b": "first word"}), ExtenderVerdict((), {"a": "full"})]
    client = ScriptedExtender(on_filter=lambda _: answers.pop(0))
    made = made_with(client, wanted=NOMINATED)
    assert await decide(made) is None
    assert client.asked == [("filter", ("b",)), ("filter", ("a", "b", "c"))]
    assert made.condition.message == "0/3 nodes are available: 1 first word, 1 full."


async def test_an_error_about_the_nominated_node_does_not_end_the_attempt() -> None:
    """All nodes are evaluated then."""
    client = ScriptedExtender(on_filter=leaves("c"))
    client.fail_once("filter")
    assert await place(made_with(client, wanted=NOMINATED)) == "c"
    assert client.asked == [("filter", ("b",)), ("filter", ("a", "b", "c"))]


# -- partial search -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "asked"),
    [
        pytest.param(["prioritizeVerb"], 100, id="filters"),
        pytest.param(["filterVerb"], 100, id="scores"),
        pytest.param(["filterVerb", "prioritizeVerb"], 1, id="neither"),
    ],
)
async def test_one_node_is_enough_only_without_scores(missing: list[str], asked: int) -> None:
    """Without Score plugins a partial search ends at the first node, unless extenders filter or score."""
    client = ScriptedExtender()
    made = extended_rig((extender("http://extender", **dict.fromkeys(missing, "")), client), percentage=10)
    made.add(*(node(f"n{number:03}") for number in range(120)), POD)
    assert await place(made)
    assert made.context.node_order.next_start == asked
    assert [len(names) for _, names in client.asked] == ([asked] if asked > 1 else [])


async def test_nodes_that_a_partial_search_left_out_count_only_where_extenders_speak_of_them() -> None:
    """The others were not evaluated, so they have no reason."""
    names = [f"n{number:03}" for number in range(120)]

    def on_filter(asked: Sequence[str]) -> ExtenderVerdict:
        beyond = next(name for name in names if name not in asked)
        return ExtenderVerdict((), {asked[0]: "full", beyond: "odd"})

    made = extended_rig((extender(), ScriptedExtender(on_filter=on_filter)), percentage=10)
    made.add(*map(node, names), POD)
    assert await decide(made) is None
    assert made.condition.message == "0/120 nodes are available: 1 full, 1 odd."


# -- scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "expected"), [pytest.param(1, "a", id="plugin wins"), pytest.param(2, "c", id="extender wins")]
)
async def test_extenders_scores_are_added_to_those_of_plugins(weight: int, expected: str) -> None:
    """A plugin's score of about 66 outweighs an extender's 6 of 10 at weight 1, not at weight 2."""
    client = ScriptedExtender(scores={"c": 6})
    made = extended_rig(
        (extender(weight=weight), client), defaults=Plugins(multi_point=plugin_set(*BARE, "ImageLocality"))
    )
    wanted = pod("web", image="web:1")
    made.add(node("a", images={"web:1": 2_000_000_000}), node("b"), node("c"), wanted)
    assert await place(made) == expected


async def test_an_extender_that_cannot_score_is_left_out() -> None:
    """This also applies to one that is not ignorable."""
    good, bad = ScriptedExtender("good", scores={"b": 1}), ScriptedExtender("bad")
    bad.fails("prioritize")
    assert await place(made_with(good, bad)) == "b"


# -- bind -----------------------------------------------------------------------------------------------------------


def bound_to(node_name: str, uid: str = POD.metadata.uid) -> Pod:
    return pod("web", uid=uid, node_name=node_name)


async def test_an_extender_binds_in_the_place_of_plugins() -> None:
    """It receives name, UID and node; the pod counts as bound."""
    bindings: list[Binding] = []
    client = ScriptedExtender(on_filter=leaves("b"), on_bind=bindings.append)
    made = made_with(client, bindVerb="bind")
    assert await place(made) == "b"
    assert bindings == [Binding("default", "web", POD.metadata.uid, "b")]
    assert made.writer.attempted == []
    assert made.context.metrics.records["default-scheduler"].scheduled == 1


async def test_plugins_bind_where_the_extender_is_not_interested() -> None:
    """The pod requests no resource that the extender manages."""
    client = ScriptedExtender()
    made = made_with(client, bindVerb="bind", managedResources=[{"name": "example.com/x"}])
    assert await place(made)
    assert (client.asked, list(made.bound)) == ([], ["web"])


@pytest.mark.parametrize(
    ("ignorable", "found", "expected", "by_plugin"),
    [
        pytest.param(False, bound_to("b"), "b", False, id="it was bound"),
        pytest.param(True, bound_to("b"), "b", False, id="ignorable: it was bound"),
        pytest.param(False, POD, "", False, id="it was not bound"),
        pytest.param(True, POD, "b", True, id="ignorable: plugins bind"),
        pytest.param(False, None, "", False, id="the pod is gone"),
        pytest.param(False, bound_to("b", "another"), "", False, id="another pod of that name"),
    ],
)
async def test_a_bind_by_an_extender_that_fails_is_settled_by_reading(
    ignorable: bool, found: Pod | None, expected: str, by_plugin: bool
) -> None:
    """Whatever it returned, the pod may be bound."""
    client = ScriptedExtender(on_filter=leaves("b"))
    client.fails("bind", "lost")
    made = made_with(client, bindVerb="bind", ignorable=ignorable)
    if found is not None:
        made.writer.pods["default/web"] = found
    assert await place(made) == expected
    assert bool(made.writer.attempted) is by_plugin
    if not expected:
        assert "its bind failed: extender http://extender: lost" in made.condition.message
        assert made.context.cache.assumed_count == 0


async def test_a_pod_that_an_extender_fails_to_bind_and_someone_else_binds() -> None:
    """It is not bound again, not even by plugins in place of an ignorable extender."""
    client = ScriptedExtender(on_filter=leaves("b"))
    client.fails("bind", "lost")
    made = made_with(client, bindVerb="bind", ignorable=True)
    made.writer.pods["default/web"] = bound_to("c")
    assert await place(made) == ""
    assert made.writer.attempted == []
    assert made.context.metrics.records["default-scheduler"].lost_binds == 1


# -- the queue ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [NODE_DELETE, UNSCHEDULED_POD_ADD], ids=lambda event: event.name)
async def test_any_event_wakes_a_pod_that_an_extender_rejected(event: ClusterEvent) -> None:
    """Extenders have no hints; a pod that a plugin rejected stays unless the plugin's hint returns Queue."""
    made = made_with(ScriptedExtender(on_filter=leaves()))
    assert await decide(made) is None
    assert made.place(POD) == "unschedulable"
    made.queue.on_event(event, node("a"), None)
    assert made.place(POD) == "backoff"

    plain = made_with(ScriptedExtender(), wanted=pod("web", requests={"cpu": "99"}), defaults=FITTING)
    assert await decide(plain) is None
    plain.queue.on_event(event, node("a"), None)
    assert plain.place(POD) == "unschedulable"


async def test_a_pod_whose_profile_is_gone_is_parked() -> None:
    """The cycle begins as one without extenders; no extender is called and nothing is suspended."""
    client = ScriptedExtender()
    made = made_with(client)
    queued: QueuedPod = made.pop()
    made.scheduler.withdraw("default-scheduler")
    assert await made.scheduler.cycles.extended.schedule(queued) is None
    assert (made.place(POD), client.asked) == ("parked", [])


# -- resources that are left to extenders ---------------------------------------------------------------------------

MANAGED = [{"name": "example.com/a", "ignoredByScheduler": True}, {"name": "example.com/b"}]


@pytest.mark.parametrize("is_called", [False, True], ids=["extenders not called", "extenders called"])
async def test_fit_leaves_resources_to_extenders(is_called: bool) -> None:
    """It ignores resources that an extender manages and the scheduler must ignore, instead of those in its args."""
    ports = SchedulerPorts(make_extender=lambda _, __: ScriptedExtender()) if is_called else None
    made = rig(defaults=default_plugins(), serve=False, ports=ports)
    config = configured("default-scheduler", "NodeResourcesFit", {"ignoredResources": ["example.com/c"]})
    with_extenders = config.model_copy(update={"extenders": (extender(managedResources=MANAGED),)})
    assert ignored_in(made, with_extenders) == ("example.com/a",)
    assert ignored_in(made, config) == ("example.com/c",)
    assert ignored_in(made, extended_profile(extender(managedResources=MANAGED[1:]))) == ()


def ignored_in(made: Rig, config: ProfileConfig) -> tuple[str, ...]:
    fit = made.scheduler.build(config).plugins["NodeResourcesFit"]
    assert isinstance(fit, NodeResourcesFit)
    ignored: tuple[str, ...] = fit.args.ignored_resources
    return ignored
