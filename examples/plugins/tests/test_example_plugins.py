"""Tests both plugins in a simulated cluster, and each extension point separately."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.simulation import PodPlacement, simulate
from bayplan_example_plugins.license_seats import LicenseSeats, LicenseSeatsArgs
from bayplan_example_plugins.node_cost import ANNOTATION, NodeCost

from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod

pytest_plugins = ["bayplan.testing"]

MANIFESTS = Path(__file__).resolve().parents[1] / "manifests"
SOLVER = {"licenses.example.com/name": "solver"}


@pytest.fixture
def registry() -> Registry:
    """The built-in plugins and these, whether they are installed or not."""
    plugins = in_tree_registry()
    plugins.register(NodeCost)
    plugins.register(LicenseSeats)
    return plugins


def placed(registry: Registry, *files: Path) -> dict[str, PodPlacement]:
    """Return the placement of each pod of some files."""
    cluster = admit(read_cluster_files([str(file) for file in files], registry.decoded_types()))
    return {pod.name: pod for pod in simulate(cluster, registry=registry).pods}


def test_the_manifests_are_placed_as_they_say(registry: Registry) -> None:
    """The cheapest node wins, a seat matters before the cost, and the pod without a seat gets a reason."""
    pods = placed(registry, *sorted(MANIFESTS.glob("*.yaml")))
    assert (pods["web"].node, pods["solve"].node, pods["solve-later"].node) == ("cheap", "dear", None)
    assert "1 node(s) had all seats of licence solver taken" in str(pods["solve-later"].reason)
    assert "1 node(s) had no seats of licence solver" in str(pods["solve-later"].reason)


@pytest.mark.parametrize(
    ("costs", "winner"),
    [
        pytest.param(("1", "0.5"), "b", id="cheaper"),
        pytest.param(("9", None), "b", id="the default is cheaper"),
        pytest.param((None, "9"), "a", id="the default is cheaper than the annotation"),
        pytest.param(("0", "nan"), "a", id="not a number"),
        pytest.param(("1e300", "5"), "b", id="beyond all bounds"),
    ],
)
def test_cheap_nodes_win(registry: Registry, tmp_path: Path, costs: tuple[str | None, str | None], winner: str) -> None:
    """Of two nodes that differ only in cost the cheaper one gets the pod."""
    nodes: list[dict[str, Any]] = []
    for name, cost in zip("ab", costs, strict=True):
        annotations = {} if cost is None else {ANNOTATION: cost}
        status = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}
        nodes.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "annotations": annotations},
                "status": status,
            }
        )
    file = tmp_path / "nodes.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": nodes}))
    pods = placed(registry, file, MANIFESTS / "profile.yaml", MANIFESTS / "pods.yaml")
    assert pods["web"].node == winner


def test_bad_args_are_reported_with_their_path(registry: Registry, tmp_path: Path) -> None:
    """A profile with invalid args is rejected, with the field and the remedy."""
    text = (MANIFESTS / "profile.yaml").read_text().replace("2.5", "-1")
    (tmp_path / "profile.yaml").write_text(text)
    with pytest.raises(Exception, match=r"args\.defaultCost.*at least 0"):
        placed(registry, tmp_path / "profile.yaml")


def test_the_plugins_keep_their_guarantees(check_plugin: Callable[..., None]) -> None:
    """Results can be reused, and computed for some nodes only."""
    status = {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}}
    seats = {"metadata": {"labels": {"licenses.example.com/solver": "1"}}, "status": status}
    cheap = {"metadata": {"annotations": {ANNOTATION: "0.5"}}, "status": status}
    solver = {"metadata": {"labels": SOLVER}, "spec": {"containers": [{"name": "main", "image": "solver"}]}}
    check_plugin(LicenseSeats, nodes=[seats], pods=[solver], rounds=10)
    check_plugin(NodeCost, nodes=[cheap], rounds=10)


def pod(labels: dict[str, str], node_name: str = "") -> Pod:
    body = {"metadata": {"name": "p", "labels": labels}, "spec": {"nodeName": node_name}}
    return msgspec.convert(body, Pod)


def node(seats: str) -> Node:
    return msgspec.convert({"metadata": {"name": "n", "labels": {"licenses.example.com/solver": seats}}}, Node)


@pytest.mark.parametrize(
    ("happened", "old", "new", "hint"),
    [
        pytest.param((Resource.POD, Action.DELETE), pod(SOLVER, "n"), None, Hint.QUEUE, id="seat freed"),
        pytest.param((Resource.POD, Action.DELETE), pod(SOLVER), None, Hint.SKIP, id="it had no node"),
        pytest.param((Resource.POD, Action.DELETE), pod({}, "n"), None, Hint.SKIP, id="it had no licence"),
        pytest.param((Resource.NODE, Action.ADD), None, node("1"), Hint.QUEUE, id="node with seats"),
        pytest.param((Resource.NODE, Action.ADD), None, node("none"), Hint.SKIP, id="node without seats"),
        pytest.param((Resource.NODE, Action.UPDATE_NODE_LABEL), node("1"), node("2"), Hint.QUEUE, id="more seats"),
        pytest.param((Resource.NODE, Action.UPDATE_NODE_LABEL), node("2"), node("1"), Hint.SKIP, id="fewer seats"),
    ],
)
def test_a_rejected_pod_is_requeued_by_what_may_help(
    happened: tuple[Resource, Action], old: object | None, new: object | None, hint: Hint
) -> None:
    """The hint of the registration that covers an event returns whether a seat may be free."""
    plugin: Any = LicenseSeats.__new__(LicenseSeats)
    plugin.args = LicenseSeatsArgs()
    (registration,) = (each for each in plugin.events_to_register() if each.event.covers(ClusterEvent(*happened)))
    assert registration.hint(pod(SOLVER), old, new) is hint
