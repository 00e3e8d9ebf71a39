"""``bayplan explain podgroup/NAME`` on a real API server, with the operator and offline."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane.launcher import ControlPlane
from tests.support.explain_command import ExplainCommand, explained
from tests.support.manifests import Manifest

pytestmark = pytest.mark.cluster
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}


def node(name: str, zone: str) -> Manifest:
    """Return a node with four CPUs."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": zone}}
    status = {"allocatable": AMOUNTS, "capacity": AMOUNTS}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def member(name: str) -> Manifest:
    """Return a member of the gang that requests two CPUs."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    metadata = {"name": name, "namespace": "default", "labels": {"bayplan.dev/pod-group": "train"}}
    spec = {"schedulerName": "batch", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


GANG = [
    {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": 3, "topology": {"key": "zone"}},
    },
    *(member(f"train-{number}") for number in range(3)),
]
OBJECTS = [
    {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "batch"}, "spec": {}},
    node("a", "one"),
    node("b", "two"),
    *GANG,
]


@pytest.fixture(scope="module")
def explain(empty_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainCommand]:
    """Start an operator on an empty control plane, whose attempt to schedule the gang has failed."""
    with explained(empty_plane, OBJECTS, tmp_path_factory.mktemp("explain") / "operator.log") as explain:
        wait_until_at_rest(explain)
        yield explain


def wait_until_at_rest(explain: ExplainCommand) -> None:
    explain.wait("train-2", "jsonpath={.status.conditions[0].reason}=Unschedulable")
    explain.operator.until(lambda: explain.online("podgroup/train")["lastAttempt"] is not None, "the gang was tried")


@pytest.mark.parametrize("target", ["podgroup/train", "train-1"])
def test_online_and_offline_explanations_are_equal(explain: ExplainCommand, target: str) -> None:
    """Both explanations are equal except for the last attempt, which only the operator stores."""
    online, offline = explain.online(target), explain.offline(target)
    gang, gang_offline = (document.get("gang") or document for document in (online, offline))
    assert (gang["verdict"], online["verdict"]) == ("Unschedulable", "Unschedulable")
    assert [(place["domain"], place["fitting"], place["needed"]) for place in gang["places"]] == [
        ("zone=one", 2, 3),
        ("zone=two", 2, 3),
    ]
    assert gang["lastAttempt"]["reason"] == "Unschedulable"
    assert gang_offline["lastAttempt"] is None
    gang["lastAttempt"] = None
    assert online == offline


def test_status_shows_the_gang(explain: ExplainCommand) -> None:
    """``bayplan status`` shows the quorum of a gang and the reason why it waits."""
    result = CliRunner().invoke(bayplan, ["status", f"--server={explain.operator.url}", "-o", "json"])
    assert result.exit_code == 0, result.output
    (gang,) = json.loads(result.stdout)["gangs"]
    expected = ("default/train", "unschedulable", 3, 3, "Unschedulable")
    assert (gang["gang"], gang["place"], gang["needed"], gang["waiting"], gang["reason"]) == expected


def is_placed(explain: ExplainCommand, count: int) -> bool:
    """Return whether the operator reports the gang as placed with *count* members."""
    gang = explain.online("podgroup/train")
    return (gang["verdict"], gang["members"]["placed"]) == ("Placed", count)


def test_the_named_event_makes_the_gang_schedulable(explain: ExplainCommand) -> None:
    """All members are bound to the named node after it grows as named."""
    (place, _) = explain.online("podgroup/train")["places"]
    whats = [event["what"] for event in place["nextMember"]["unblocking"]]
    assert "node a grown to 6 cpu allocatable" in whats
    try:
        resize(explain, "6")
        explain.plane.kubectl("wait", "pod", "--all", "--for=condition=PodScheduled", "--timeout=60s")
        explain.operator.until(lambda: is_placed(explain, 3), "the operator has received the binds")
        shown = explain.plane.kubectl("get", "pods", "--output=jsonpath={.items[*].spec.nodeName}")
        assert shown.split() == ["a", "a", "a"]
    finally:
        resize(explain, AMOUNTS["cpu"])
        explain.replace(GANG)
        wait_until_at_rest(explain)


def resize(explain: ExplainCommand, cpu: str) -> None:
    patch = json.dumps({"status": {"allocatable": {**AMOUNTS, "cpu": cpu}}})
    explain.plane.kubectl("patch", "node", "a", "--subresource=status", "--type=merge", f"--patch={patch}")
