"""Scheduling cycles with extenders that filter, score and bind as in kube-scheduler, and messages of rejected pods."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.framework.cluster_events import NODE_DELETE, UNSCHEDULED_POD_ADD, ClusterEvent
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.node_resources_fit import NodeResourcesFit
from scheduler_core.ports import Binding, ExtenderVerdict
from scheduler_core.scheduler import SchedulerPorts
from tests.support.affinities import named, node_affinity
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import BARE, Rig, configured, default_rig, plugin_set
from tests.support.scripted_extender import (
    ScriptedExtender,
    decide,
    extender,
    extender_profile,
    extender_rig,
    passes_only,
    schedule_and_bind,
)
from tests.support.tables import table

POD = pod("web", requests={"cpu": "1"})
WITH_FIT = Plugins(multi_point=plugin_set(*BARE, "NodeResourcesFit", "NodeUnschedulable"))


def made_with(*clients: ScriptedExtender, wanted: Pod = POD, defaults: Plugins | None = None, **fields: object) -> Rig:
    """Return a scheduler with nodes a, b and c, one pod, and extenders that share ``fields``."""
    made = extender_rig(*((extender(client.url, **fields), client) for client in clients), defaults=defaults)
    made.add(*(node(name) for name in "abc"), wanted)
    return made


# -- filter ---------------------------------------------------------------------------------------------------------


async def test_a_pod_is_bound_to_a_node_that_filters_and_extenders_accept() -> None:
    """Extenders receive only nodes that pass the filters."""
    client = ScriptedExtender(on_filter=passes_only("b"))
    made = extender_rig((extender(), client), defaults=WITH_FIT)
    made.add(node("a", unschedulable=True), node("b"), node("c"), POD)
    assert await schedule_and_bind(made) == "b"
    assert client.calls == [("filter", ("b", "c"))]
    assert made.bound == {"web": "b"}


async def test_a_single_feasible_node_is_not_scored() -> None:
    """Extenders score two feasible nodes, but not a single one."""
    client = ScriptedExtender(on_filter=passes_only("b"))
    assert await schedule_and_bind(made_with(client)) == "b"
    client = ScriptedExtender(on_filter=passes_only("b", "c"), scores={"c": 1})
    assert await schedule_and_bind(made_with(client)) == "c"
    assert client.calls[1:] == [("prioritize", ("b", "c"))]


@table(
    "script, message, rejected_by",
    ("without reasons", passes_only(), "0/4 nodes are available: 1 node(s) were unschedulable.", {"NodeUnschedulable"}),
    (
        "with reasons",
        passes_only(failed={"a": "no licence", "b": "no licence"}, unresolvable={"c": "no dongle"}),
        "0/4 nodes are available: 1 no dongle, 1 node(s) were unschedulable, 2 no licence.",
        {"NodeUnschedulable"},
    ),
    (
        "reasons for nodes that were not sent",
        passes_only(failed={"off": "no licence", "ghost": "gone"}),
        "0/4 nodes are available: 1 no licence.",
        {"NodeUnschedulable"},
    ),
)
async def test_a_pod_that_extenders_reject_is_reported(script: object, message: str, rejected_by: set[str]) -> None:
    """Reasons of extenders are listed with those of plugins, and extenders count as rejecting."""
    client = ScriptedExtender(on_filter=script)  # type: ignore[arg-type]  # rows of a table
    made = made_with(client, defaults=WITH_FIT)
    made.add(node("off", unschedulable=True))
    assert await decide(made) is None
    assert made.writer.events[-1].note == message
    assert (made.condition.reason, made.condition.message) == ("Unschedulable", message)
    queued = present(made.queue.find(POD.metadata.uid))
    assert queued.rejected_by == {"Extender", *rejected_by}


@table(
    "failed, message",
    ("without a reason", {}, "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."),
    (
        "with a reason",
        {"b": "full"},
        "0/3 nodes are available: 1 full, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    ),
)
async def test_a_node_rejected_without_a_reason_has_the_status_of_pre_filter(
    failed: dict[str, str], message: str
) -> None:
    """A node that an extender rejects without a reason counts as excluded by PreFilter, as in kube-scheduler."""
    client = ScriptedExtender(on_filter=passes_only(failed=failed))
    wanted = pod("web", affinity=node_affinity(named("b")))
    made = made_with(client, wanted=wanted, defaults=Plugins(multi_point=plugin_set(*BARE, "NodeAffinity")))
    assert await decide(made) is None
    assert client.calls == [("filter", ("b",))]
    assert made.condition.message == message


async def test_extenders_that_accept_a_node_do_not_count_as_rejecting() -> None:
    """A failure after the calls of extenders is not attributed to the extenders."""
    journal = Journal(results={"Rec.reserve": ServerUnavailableError("x")})
    made = extender_rig((extender(), ScriptedExtender(on_filter=passes_only("a"))), plugins=[recorder("Rec", journal)])
    made.add(node("a"), node("b"), POD)
    assert await decide(made) is None
    queued = present(made.queue.find(POD.metadata.uid))
    assert "Extender" not in queued.rejected_by


async def test_a_filter_error_ends_the_attempt() -> None:
    """An extender's filter error ends the attempt without preemption, and the pod is retried after backoff."""
    client = ScriptedExtender()
    client.fail("filter", "too late")
    made = made_with(client)
    assert await decide(made) is None
    assert (made.condition.reason, made.condition.message) == ("SchedulerError", "extender http://extender: too late")
    assert made.place_of(POD) == "errorBackoff"
    assert client.called_verbs() == ["filter"]


async def test_an_error_of_an_ignorable_extender_is_ignored() -> None:
    """An ignorable extender is called last, and its error leaves the feasible nodes unchanged."""
    good, bad = ScriptedExtender("good", passes_only("b")), ScriptedExtender("bad")
    bad.fail("filter")
    made = extender_rig((extender("bad", ignorable=True), bad), (extender("good"), good))
    made.add(node("a"), node("b"), POD)
    assert await schedule_and_bind(made) == "b"
    assert bad.calls == [("filter", ("b",))]


async def test_no_extender_is_called_for_an_infeasible_pod() -> None:
    """No extender is called if plugins reject all nodes or there are no nodes."""
    client = ScriptedExtender()
    made = made_with(client, wanted=pod("big", requests={"cpu": "99"}), defaults=WITH_FIT)
    assert await decide(made) is None
    made = extender_rig((extender(), client))
    made.add(POD)
    assert await decide(made) is None
    assert made.writer.events[-1].note == "no nodes available to schedule pods"
    assert client.calls == []


async def test_an_unexpected_exception_of_an_extender_client() -> None:
    """An unexpected exception of the client ends the attempt, and the pod is retried."""
    client = ScriptedExtender(faults={"filter": ZeroDivisionError("boom")})
    made = made_with(client)
    assert await decide(made) is None
    assert "internal error: ZeroDivisionError: boom" in made.condition.message
    assert (made.place_of(POD), made.context.suspension.is_on) == ("errorBackoff", False)


# -- the nominated node ---------------------------------------------------------------------------------------------

NOMINATED = pod("web", requests={"cpu": "1"}, nominated_node="b")


async def test_the_nominated_node_is_filtered_first() -> None:
    """A nominated node that the extenders accept is chosen without evaluating other nodes."""
    client = ScriptedExtender()
    made = made_with(client, wanted=NOMINATED)
    assert await schedule_and_bind(made) == "b"
    assert client.calls == [("filter", ("b",))]


async def test_a_nominated_node_that_extenders_reject() -> None:
    """All nodes are evaluated after the nominated node is rejected, whose reason is retained."""
    answers = [ExtenderVerdict((), {"b": "first word"}), ExtenderVerdict((), {"a": "full"})]
    client = ScriptedExtender(on_filter=lambda _: answers.pop(0))
    made = made_with(client, wanted=NOMINATED)
    assert await decide(made) is None
    assert client.calls == [("filter", ("b",)), ("filter", ("a", "b", "c"))]
    assert made.condition.message == "0/3 nodes are available: 1 first word, 1 full."


async def test_an_extender_error_for_the_nominated_node() -> None:
    """All nodes are evaluated after an extender's error for the nominated node."""
    client = ScriptedExtender(on_filter=passes_only("c"))
    client.fail_once("filter")
    assert await schedule_and_bind(made_with(client, wanted=NOMINATED)) == "c"
    assert client.calls == [("filter", ("b",)), ("filter", ("a", "b", "c"))]


# -- partial search -------------------------------------------------------------------------------------------------


@table(
    "missing, evaluated",
    ("filters", ["prioritizeVerb"], 100),
    ("scores", ["filterVerb"], 100),
    ("neither", ["filterVerb", "prioritizeVerb"], 1),
)
async def test_a_search_ends_at_the_first_node_only_without_scores(missing: list[str], evaluated: int) -> None:
    """Without Score plugins a partial search ends at the first node, unless extenders filter or score."""
    client = ScriptedExtender()
    made = extender_rig((extender("http://extender", **dict.fromkeys(missing, "")), client), percentage=10)
    made.add(*(node(f"n{number:03}") for number in range(120)), POD)
    assert await schedule_and_bind(made)
    assert made.context.node_order.next_start == evaluated
    assert [len(names) for _, names in client.calls] == ([evaluated] if evaluated > 1 else [])


async def test_nodes_outside_a_partial_search() -> None:
    """A node outside a partial search counts in the message only if an extender returns a reason for it."""
    names = [f"n{number:03}" for number in range(120)]

    def on_filter(evaluated: Sequence[str]) -> ExtenderVerdict:
        beyond = next(name for name in names if name not in evaluated)
        return ExtenderVerdict((), {evaluated[0]: "full", beyond: "odd"})

    made = extender_rig((extender(), ScriptedExtender(on_filter=on_filter)), percentage=10)
    made.add(*map(node, names), POD)
    assert await decide(made) is None
    assert made.condition.message == "0/120 nodes are available: 1 full, 1 odd."


# -- scores ---------------------------------------------------------------------------------------------------------


@table("weight, expected", ("plugin wins", 1, "a"), ("extender wins", 2, "c"))
async def test_scores_of_extenders_are_added_to_scores_of_plugins(weight: int, expected: str) -> None:
    """A plugin's score of about 66 outweighs an extender's 6 of 10 at weight 1, not at weight 2."""
    client = ScriptedExtender(scores={"c": 6})
    made = extender_rig(
        (extender(weight=weight), client), defaults=Plugins(multi_point=plugin_set(*BARE, "ImageLocality"))
    )
    wanted = pod("web", image="web:1")
    made.add(node("a", images={"web:1": 2_000_000_000}), node("b"), node("c"), wanted)
    assert await schedule_and_bind(made) == expected


async def test_an_extender_that_fails_to_score_is_ignored() -> None:
    """A prioritize error is ignored, also of an extender that is not ignorable."""
    good, bad = ScriptedExtender("good", scores={"b": 1}), ScriptedExtender("bad")
    bad.fail("prioritize")
    assert await schedule_and_bind(made_with(good, bad)) == "b"


# -- bind -----------------------------------------------------------------------------------------------------------


def bound_to(node_name: str, uid: str = POD.metadata.uid) -> Pod:
    return pod("web", uid=uid, node_name=node_name)


async def test_an_extender_binds_instead_of_plugins() -> None:
    """The extender receives name, UID and node, and the pod counts as scheduled."""
    bindings: list[Binding] = []
    client = ScriptedExtender(on_filter=passes_only("b"), on_bind=bindings.append)
    made = made_with(client, bindVerb="bind")
    assert await schedule_and_bind(made) == "b"
    assert bindings == [Binding("default", "web", POD.metadata.uid, "b")]
    assert made.writer.attempted == []
    assert made.context.metrics.records["default-scheduler"].scheduled == 1


async def test_plugins_bind_pods_without_managed_resources() -> None:
    """Plugins bind a pod that requests no resource that the extender manages."""
    client = ScriptedExtender()
    made = made_with(client, bindVerb="bind", managedResources=[{"name": "example.com/x"}])
    assert await schedule_and_bind(made)
    assert (client.calls, list(made.bound)) == ([], ["web"])


@table(
    "ignorable, found, expected, by_plugin",
    ("bound", False, bound_to("b"), "b", False),
    ("ignorable, bound", True, bound_to("b"), "b", False),
    ("not bound", False, POD, "", False),
    ("ignorable, plugins bind", True, POD, "b", True),
    ("deleted", False, None, "", False),
    ("another pod of the name", False, bound_to("b", "another"), "", False),
)
async def test_the_pod_is_read_after_a_failed_extender_bind(
    ignorable: bool, found: Pod | None, expected: str, by_plugin: bool
) -> None:
    """After an extender's bind error the pod is read, because it may be bound."""
    client = ScriptedExtender(on_filter=passes_only("b"))
    client.fail("bind", "lost")
    made = made_with(client, bindVerb="bind", ignorable=ignorable)
    if found is not None:
        made.writer.pods["default/web"] = found
    assert await schedule_and_bind(made) == expected
    assert bool(made.writer.attempted) is by_plugin
    if not expected:
        assert "its bind failed: extender http://extender: lost" in made.condition.message
        assert made.context.cache.assumed_count == 0


async def test_another_scheduler_binds_a_pod_after_a_failed_extender_bind() -> None:
    """A pod that another scheduler has bound is not bound by plugins after an ignorable extender failed."""
    client = ScriptedExtender(on_filter=passes_only("b"))
    client.fail("bind", "lost")
    made = made_with(client, bindVerb="bind", ignorable=True)
    made.writer.pods["default/web"] = bound_to("c")
    assert await schedule_and_bind(made) == ""
    assert made.writer.attempted == []
    assert made.context.metrics.records["default-scheduler"].lost_binds == 1


# -- the queue ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [NODE_DELETE, UNSCHEDULED_POD_ADD], ids=lambda event: event.name)
async def test_any_event_requeues_a_pod_that_an_extender_rejected(event: ClusterEvent) -> None:
    """Any event requeues a pod that an extender rejected, because extenders have no queueing hints."""
    made = made_with(ScriptedExtender(on_filter=passes_only()))
    assert await decide(made) is None
    assert made.place_of(POD) == "unschedulable"
    made.queue.on_event(event, node("a"), None)
    assert made.place_of(POD) == "backoff"

    plain = made_with(ScriptedExtender(), wanted=pod("web", requests={"cpu": "99"}), defaults=WITH_FIT)
    assert await decide(plain) is None
    plain.queue.on_event(event, node("a"), None)
    assert plain.place_of(POD) == "unschedulable"


async def test_a_pod_whose_profile_is_withdrawn_is_parked() -> None:
    """A pod whose profile is withdrawn before its cycle is parked, and no extender is called."""
    client = ScriptedExtender()
    made = made_with(client)
    queued: QueuedPod = made.pop()
    made.scheduler.withdraw("default-scheduler")
    assert await made.scheduler.cycles.extended.schedule(queued) is None
    assert (made.place_of(POD), client.calls) == ("parked", [])


# -- resources that extenders manage --------------------------------------------------------------------------------

MANAGED = [{"name": "example.com/a", "ignoredByScheduler": True}, {"name": "example.com/b"}]


@pytest.mark.parametrize("is_called", [False, True], ids=["extenders not called", "extenders called"])
async def test_fit_ignores_resources_that_extenders_manage(is_called: bool) -> None:
    """NodeResourcesFit ignores managed resources with ignoredByScheduler instead of those in its args."""
    ports = SchedulerPorts(make_extender=lambda _, __: ScriptedExtender()) if is_called else None
    made = default_rig(serve=False, ports=ports)
    config = configured("default-scheduler", "NodeResourcesFit", {"ignoredResources": ["example.com/c"]})
    with_extenders = config.model_copy(update={"extenders": (extender(managedResources=MANAGED),)})
    assert ignored_in(made, with_extenders) == ("example.com/a",)
    assert ignored_in(made, config) == ("example.com/c",)
    assert ignored_in(made, extender_profile(extender(managedResources=MANAGED[1:]))) == ()


def ignored_in(made: Rig, config: ProfileConfig) -> tuple[str, ...]:
    fit = made.scheduler.build(config).plugins["NodeResourcesFit"]
    assert isinstance(fit, NodeResourcesFit)
    ignored: tuple[str, ...] = fit.args.ignored_resources
    return ignored
