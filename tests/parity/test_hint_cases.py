"""Tests of requeueing by queueing hints: a case's change through the feeds and the hints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler_core.errors import ConfigError
from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.hint_cases import Hints, decode_hint_case, evaluate_hints

Json = dict[str, Any]


def a_pod(name: str, *, labels: dict[str, str] | None = None, status: Json | None = None, **spec: Any) -> Json:
    """Return a pod with one container."""
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status or {}}


def a_node(cpu: str, **spec: Any) -> Json:
    """Return a node with that much CPU."""
    return {"metadata": {"name": "n"}, "spec": spec, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}


WAITING = a_pod("p", priority=5)
RUNNING = a_pod("r", nodeName="n")


def hints(change: Json, **case: Any) -> Hints:
    """Evaluate a case."""
    line = json.dumps({"name": "c", "pod": WAITING, **case, "change": change}).encode()
    return next(evaluate_hints([line], in_tree_registry(), default_plugins()))


@pytest.mark.parametrize(
    ("change", "events"),
    [
        pytest.param({"kind": "Node", "new": a_node("4")}, ("NodeAdd",), id="node-came"),
        pytest.param({"kind": "Node", "old": a_node("4")}, ("NodeDelete",), id="node-went"),
        pytest.param(
            {"kind": "Node", "old": a_node("1"), "new": a_node("4")}, ("NodeUpdateNodeAllocatable",), id="node-grew"
        ),
        pytest.param({"kind": "Pod", "old": RUNNING}, ("AssignedPodDelete",), id="pod-went"),
        pytest.param({"kind": "Pod", "new": a_pod("w")}, (), id="another-waits"),
        pytest.param({"kind": "Namespace", "new": {"metadata": {"name": "x"}}}, (), id="namespace"),
        pytest.param(
            {"kind": "StorageClass", "new": {"metadata": {"name": "x"}}},
            ("storage.k8s.io/StorageClassAdd",),
            id="class",
        ),
    ],
)
def test_changes_become_events(change: Json, events: tuple[str, ...]) -> None:
    """The events are those that the feeds send to the queue."""
    there = {"Node": "nodes", "Pod": "pods"}.get(change["kind"])
    known = {there: [change["old"]]} if there and "old" in change else {}
    assert hints(change, **known).events == events


def test_every_registered_plugin_is_called() -> None:
    """A node that is too small does not help NodeResourcesFit's pods, but perhaps those of NodeName."""
    found = hints({"kind": "Node", "new": a_node("500m")}).verdicts
    assert (found["NodeResourcesFit"], found["NodeName"]) == ("Skip", "Queue")
    assert "SchedulingGates" not in found


def test_the_pods_own_change_is_evaluated_with_the_new_pod() -> None:
    """Another pod's own change is ignored."""
    gated = a_pod("p", schedulingGates=[{"name": "g"}])
    change = {"kind": "Pod", "old": gated, "new": WAITING}
    assert hints(change, pod=gated).verdicts["SchedulingGates"] == "Queue"
    assert hints(change, pod=a_pod("other"), pods=[gated]).events == ()


@pytest.mark.parametrize(
    ("priority", "events"),
    [
        pytest.param(9, ("AssignedPodDelete",), id="higher"),
        pytest.param(5, ("AssignedPodDelete",), id="equal"),
        pytest.param(1, (), id="lower"),
    ],
)
def test_an_ended_nomination_is_an_event_for_pods_of_no_higher_priority(priority: int, events: tuple[str, ...]) -> None:
    """The waiting pod has priority 5."""
    nominated = a_pod("q", priority=priority, status={"nominatedNodeName": "n"})
    assert hints({"kind": "Pod", "old": nominated}, pods=[nominated]).events == events


def test_a_plugin_without_a_rejecting_point_is_not_called() -> None:
    """It cannot have rejected a pod."""
    off = {"disabled": [{"name": "NodePorts"}]}
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": {"preFilter": off, "filter": off}}],
    }
    change = {"kind": "Node", "new": a_node("4")}
    assert "NodePorts" in hints(change).verdicts
    assert "NodePorts" not in hints(change, profile=profile).verdicts


def test_an_unknown_kind_is_rejected() -> None:
    """The message lists the known kinds."""
    with pytest.raises(ConfigError, match="unknown kind Secret; use one of Pod, Node"):
        hints({"kind": "Secret", "new": {"metadata": {"name": "x"}}})


def test_a_line_without_a_change_is_rejected() -> None:
    """A hint case needs a change."""
    with pytest.raises(ConfigError, match="change"):
        decode_hint_case(json.dumps({"pod": WAITING}).encode())
