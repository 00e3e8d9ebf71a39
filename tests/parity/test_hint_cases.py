"""Tests of hint_cases: a change passes through the feeds and the queueing hints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler_core.errors import ConfigError
from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.hint_cases import Hints, decode_hint_case, evaluate_hints
from tests.support.tables import table

Json = dict[str, Any]


def pod_json(name: str, *, labels: dict[str, str] | None = None, status: Json | None = None, **spec: Any) -> Json:
    """Return a pod with one container."""
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status or {}}


def node_json(cpu: str, **spec: Any) -> Json:
    """Return a node with this much CPU."""
    return {"metadata": {"name": "n"}, "spec": spec, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}


WAITING = pod_json("p", priority=5)
RUNNING = pod_json("r", nodeName="n")


def evaluate(change: Json, **case: Any) -> Hints:
    """Evaluate a case and return its result."""
    line = json.dumps({"name": "c", "pod": WAITING, **case, "change": change}).encode()
    return next(evaluate_hints([line], in_tree_registry(), default_plugins()))


@table(
    "change, events",
    ("node-added", {"kind": "Node", "new": node_json("4")}, ("NodeAdd",)),
    ("node-deleted", {"kind": "Node", "old": node_json("4")}, ("NodeDelete",)),
    ("node-updated", {"kind": "Node", "old": node_json("1"), "new": node_json("4")}, ("NodeUpdateNodeAllocatable",)),
    ("pod-deleted", {"kind": "Pod", "old": RUNNING}, ("AssignedPodDelete",)),
    ("other-waiting-pod", {"kind": "Pod", "new": pod_json("w")}, ()),
    ("namespace", {"kind": "Namespace", "new": {"metadata": {"name": "x"}}}, ()),
    ("class", {"kind": "StorageClass", "new": {"metadata": {"name": "x"}}}, ("storage.k8s.io/StorageClassAdd",)),
)
def test_changes_become_events(change: Json, events: tuple[str, ...]) -> None:
    """The events are those that the feeds send to the queue."""
    field = {"Node": "nodes", "Pod": "pods"}.get(change["kind"])
    known = {field: [change["old"]]} if field and "old" in change else {}
    assert evaluate(change, **known).events == events


def test_every_registered_plugin_is_called() -> None:
    """A new node that is too small is skipped by NodeResourcesFit and queued by NodeName."""
    found = evaluate({"kind": "Node", "new": node_json("500m")}).verdicts
    assert (found["NodeResourcesFit"], found["NodeName"]) == ("Skip", "Queue")
    assert "SchedulingGates" not in found


def test_the_pods_own_change_is_evaluated_with_the_new_pod() -> None:
    """The waiting pod's own change is evaluated with its new version, and that of another pod is ignored."""
    gated = pod_json("p", schedulingGates=[{"name": "g"}])
    change = {"kind": "Pod", "old": gated, "new": WAITING}
    assert evaluate(change, pod=gated).verdicts["SchedulingGates"] == "Queue"
    assert evaluate(change, pod=pod_json("other"), pods=[gated]).events == ()


@table(
    "priority, events", ("higher", 9, ("AssignedPodDelete",)), ("equal", 5, ("AssignedPodDelete",)), ("lower", 1, ())
)
def test_an_ended_nomination_is_an_event_for_pods_of_no_higher_priority(priority: int, events: tuple[str, ...]) -> None:
    """The end of a nomination is an event for pods of the same or a lower priority."""
    nominated = pod_json("q", priority=priority, status={"nominatedNodeName": "n"})
    assert evaluate({"kind": "Pod", "old": nominated}, pods=[nominated]).events == events


def test_a_plugin_without_a_rejecting_point_is_not_called() -> None:
    """A plugin whose rejecting extension points are disabled is not called."""
    off = {"disabled": [{"name": "NodePorts"}]}
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": {"preFilter": off, "filter": off}}],
    }
    change = {"kind": "Node", "new": node_json("4")}
    assert "NodePorts" in evaluate(change).verdicts
    assert "NodePorts" not in evaluate(change, profile=profile).verdicts


def test_an_unknown_kind_is_rejected() -> None:
    """A change of an unknown kind is an error that lists the known kinds."""
    with pytest.raises(ConfigError, match="unknown kind Secret; use one of Pod, Node"):
        evaluate({"kind": "Secret", "new": {"metadata": {"name": "x"}}})


def test_a_line_without_a_change_is_rejected() -> None:
    """A line without a change is an error."""
    with pytest.raises(ConfigError, match="change"):
        decode_hint_case(json.dumps({"pod": WAITING}).encode())
