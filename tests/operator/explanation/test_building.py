"""Explanations, as the scheduler that decides gives them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from bayplan.explanation.building import explain_pod
from bayplan.explanation.model import (
    Explanation,
    NodeCounts,
    PluginRejections,
    ReasonCount,
    Verdict,
)
from bayplan.explanation.parts import Amount, Lack, NodeLacks, Victim
from bayplan.explanation.telling import ExplanationOptions

from scheduler_core.config.extender_config import Extender
from scheduler_core.config.plugins_config import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.extension_points import NodeFilterPlugin
from scheduler_core.framework.status import Status
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.preemption import budget
from tests.support.scheduling import BARE, Rig, plugin_set, rig


def served(*objects: Node | Pod) -> Rig:
    """A scheduler with the default plugins."""
    made = rig(defaults=default_plugins())
    made.add(*objects)
    return made


def explained(made: Rig, asked: Pod, **options: int) -> Explanation:
    """Explain a pod."""
    return explain_pod(made.context, asked, ExplanationOptions(**options))


def test_a_pod_that_fits() -> None:
    """It is told where it would go, and why there."""
    told = explained(served(node("a"), node("b"), pod("p", node_name="a", requests={"cpu": "2"})), pod())
    assert (told.verdict, told.node, told.tied, told.message) == (Verdict.FITS, "b", ("b",), None)
    assert told.headline == "pod default/pod would go to node b; it fits on 2 of 2 nodes"
    assert [score.node for score in told.scores] == ["b", "a"]
    assert told.scores[0].total > told.scores[1].total
    for score in told.scores:
        assert score.total == sum(part.weighted for part in score.plugins.values())
    assert (told.unblocking, told.nearest, told.preemption) == ((), (), None)


def test_the_node_among_equals_is_the_one_that_the_next_attempt_takes() -> None:
    """Ties are settled as the cycle will."""
    waiting = pod()
    made = served(*(node(f"n{number}") for number in range(9)), waiting)
    told = explained(made, waiting)
    assert len(told.tied) == 9
    assert "one of 9 equally good ones" in told.headline
    attempt = made.decide()
    assert attempt is not None
    assert attempt.node_name == told.node


def test_a_pod_that_fits_nowhere() -> None:
    """Who rejects how many nodes and why, the nearest with amounts, and the message of the event."""
    objects: list[Node | Pod] = [
        node("a", allocatable={"cpu": "1", "memory": "1Gi", "pods": "9"}),
        node("b", allocatable={"cpu": "500m", "memory": "64Gi", "pods": "9"}),
        node("c", unschedulable=True),
    ]
    told = explained(served(*objects), pod(requests={"cpu": "2", "memory": "2Gi"}))
    assert (told.verdict, told.node, told.nodes) == (Verdict.UNSCHEDULABLE, None, NodeCounts(3, 0))
    assert told.headline == "pod default/pod fits nowhere: 0 of 3 nodes"
    assert told.rejections == (
        PluginRejections(
            "NodeResourcesFit", 2, (ReasonCount("Insufficient cpu", 2), ReasonCount("Insufficient memory", 1))
        ),
        PluginRejections("NodeUnschedulable", 1, (ReasonCount("node(s) were unschedulable", 1),)),
    )
    fit = Lack("NodeResourcesFit", ("Insufficient cpu",), False, (Amount("cpu", 2000, 500),))
    assert told.nearest[0] == NodeLacks("b", (fit,))
    assert told.message is not None
    assert told.message.startswith("0/3 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable, 2 ")
    assert told.unblocking


def test_preemption_is_planned_and_not_done() -> None:
    """Node, victims and protected victims are told; nobody is evicted and nothing is promised."""
    victim = pod("victim", node_name="n", requests={"cpu": "3"}, labels={"app": "a"}, priority=1)
    made = served(node("n"), victim)
    made.context.cache.columns.disruption_budgets.assign(budget("guard", {"app": "a"}, 0))
    told = explained(made, pod(requests={"cpu": "2"}, priority=10))
    assert told.preemption is not None
    assert told.preemption.node == "n"
    assert told.preemption.victims == (Victim("default", "victim", 1),)
    assert (told.preemption.pdb_violations, told.preemption.candidates, told.preemption.message) == (1, 1, None)
    assert told.headline.endswith("; preemption would make room on node n")
    assert made.writer.patches == []
    assert made.context.cache.get(victim.metadata.uid) is not None
    assert not list(made.queue.nominator.nodes())


def test_why_preemption_would_not_help() -> None:
    """The plugin's own words are told."""
    told = explained(served(node("n")), pod(requests={"cpu": "64"}))
    assert told.preemption is not None
    assert told.preemption.node is None
    assert told.preemption.message is not None
    assert "Preemption is not helpful for scheduling" in told.preemption.message


BARE_ROWS = [
    pytest.param(
        pod(gates=["a/b"]),
        Verdict.GATED,
        "pod default/pod is gated by SchedulingGates: waiting for scheduling gates: [a/b]",
        id="gated",
    ),
    pytest.param(
        pod(scheduler_name="nightly"),
        Verdict.NO_PROFILE,
        'no profile serves schedulerName "nightly" of pod default/pod; there are: default-scheduler',
        id="no profile",
    ),
    pytest.param(
        pod(phase="Succeeded", node_name="n"),
        Verdict.ENDED,
        "pod default/pod has ended: it is not scheduled",
        id="ended",
    ),
    pytest.param(
        pod(scheduler_name="other", node_name="n"),
        Verdict.PLACED,
        'pod default/pod is on node n; no profile serves "other" here',
        id="placed by another scheduler",
    ),
]


@pytest.mark.parametrize(("asked", "verdict", "headline"), BARE_ROWS)
def test_pods_of_which_no_node_is_looked_at(asked: Pod, verdict: Verdict, headline: str) -> None:
    """The headline says it all."""
    told = explained(served(node("n")), asked)
    assert (told.verdict, told.headline, told.scores, told.nearest) == (verdict, headline, (), ())


def test_no_nodes() -> None:
    """An empty cluster is told in plain words, and that a node would help."""
    told = explained(served(), pod())
    assert told.headline == "pod default/pod fits nowhere: there are no nodes"
    assert told.message == "no nodes available to schedule pods"
    assert [(event.what, event.fits_on) for event in told.unblocking] == [("a node added", "new-node")]


def test_a_placed_pod_is_explained_as_if_it_were_new() -> None:
    """Its own place does not count against it, and it is on its node afterwards as before."""
    placed = pod("placed", node_name="n", requests={"cpu": "3"})
    made = served(node("n"), placed, pod("other", node_name="n"))
    columns = made.context.cache.columns
    before = (columns.requested.copy(), list(columns.pods[0]))
    told = explained(made, placed)
    assert (told.verdict, told.node, told.headline) == (
        Verdict.PLACED,
        "n",
        "pod default/placed is on node n already",
    )
    assert [score.node for score in told.scores] == ["n"]
    assert "as if" not in told.headline
    assert "if it were placed anew now" in told.notices[0]
    assert (columns.requested == before[0]).all()
    assert list(columns.pods[0]) == before[1]


def test_an_assumed_pod_is_being_bound() -> None:
    """The API server shows no node yet, the scheduler holds one."""
    waiting = pod("fresh")
    made = served(node("n"), waiting)
    assert made.decide() is not None
    told = explained(made, waiting)
    assert (told.verdict, told.node) == (Verdict.PLACED, "n")
    assert told.headline == "pod default/fresh is being bound to node n"


class Faulty(NodeFilterPlugin):
    """Raises."""

    name = "Faulty"

    def filter_node(self, state: object, pod: object, node: object) -> Status:
        raise RuntimeError("out of luck")


def test_a_fault_of_a_plugin_is_told() -> None:
    """It names the plugin."""
    made = rig((Faulty,), defaults=Plugins(multi_point=plugin_set("Faulty", *BARE)))
    made.add(node("n"))
    told = explained(made, pod())
    assert told.verdict is Verdict.ERROR
    assert 'running "Faulty" filter plugin' in told.headline
    assert told.unblocking == ()


def test_a_promised_node_is_noted() -> None:
    """Only it was looked at."""
    told = explained(served(node("a"), node("b")), pod(nominated_node="b"))
    assert told.node == "b"
    assert told.notices == ("node b is promised to the pod, so no other was looked at",)


def test_no_more_than_asked_for() -> None:
    """The options bound the lists."""
    made = served(*(node(f"n{number}") for number in range(9)))
    assert len(explained(made, pod(), scored=3).scores) == 3
    assert len(explained(made, pod(requests={"cpu": "9"}), nearest=2).nearest) == 2


def test_the_document_has_the_documented_fields() -> None:
    """``docs/explain.md`` tells users of these names."""
    document: dict[str, Any] = msgspec.to_builtins(explained(served(node("n")), pod(requests={"cpu": "64"})))
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
        "notices",
        "gang",
    ]
    assert list(document["nearest"][0]["lacks"][0]) == ["plugin", "reasons", "preemptionMayHelp", "amounts"]
    assert list(document["preemption"]) == ["node", "victims", "pdbViolations", "candidates", "message"]
    assert list(document["unblocking"][0]) == ["what", "event", "plugins", "fitsOn"]


def test_extenders_are_not_asked() -> None:
    """Whoever reads the explanation of a profile that has some is told so."""
    made = served(node("a"))
    extender = Extender.model_validate({"urlPrefix": "http://licences.example.com", "filterVerb": "filter"})
    config = ProfileConfig(scheduler_name=pod().spec.scheduler_name, extenders=(extender,))
    made.scheduler.activate([made.scheduler.build(config)])
    notice = "Extenders are not asked here, as the running operator would: http://licences.example.com."
    assert notice in explained(made, pod()).notices
