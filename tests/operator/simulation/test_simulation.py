"""Tests of simulations."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import Place, Placed, read_cluster_files
from bayplan.simulation.packing import NodeUsage
from bayplan.simulation.simulation import (
    PodPlacement,
    RejectionCause,
    SimulationOptions,
    SimulationResult,
    Verdict,
    cause_of,
    rejection_causes,
    simulate,
)

from scheduler_core.framework import registry
from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import NodeFilterPlugin, PermitPlugin, PermitResult
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.device_preemption import held, holder, pending
from tests.support.devices import claim, device, device_class, exactly, slice_of
from tests.support.presence import present
from tests.support.tables import table

EXAMPLES = Path(__file__).parents[3] / "examples" / "simulate"


DEVICES = {"metadata": {"name": "default-scheduler"}, "spec": {"preemption": {"devices": True}}}


def cluster(*objects: Node | Pod, profiles: tuple[dict[str, Any], ...] = ()) -> AdmittedCluster:
    """Return a cluster of nodes and pods."""
    return AdmittedCluster(
        nodes=tuple(each for each in objects if isinstance(each, Node)),
        pods=tuple(each for each in objects if isinstance(each, Pod)),
        profiles=tuple(Placed(profile, Place("f.yaml", number)) for number, profile in enumerate(profiles, start=1)),
    )


def nodes_of(result: SimulationResult) -> dict[str, str]:
    """Return the node of each pod."""
    return {placement.name: placement.node or "" for placement in result.pods}


def test_feasible_pods_are_scheduled() -> None:
    """A pod has a node, or the message of its PodScheduled condition."""
    result = simulate(cluster(node("n"), pod("fits", requests={"cpu": "3"}), pod("waits", requests={"cpu": "3"})))
    message = (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert [(each.name, each.verdict, each.node, each.reason, each.attempts) for each in result.pods] == [
        ("fits", Verdict.PLACED, "n", None, 1),
        ("waits", Verdict.UNSCHEDULABLE, None, message, 1),
    ]


def test_higher_priorities_are_scheduled_first() -> None:
    """If only one of two pods fits, the pod with the higher priority is scheduled."""
    objects = (node("n"), pod("a", requests={"cpu": "3"}), pod("b", requests={"cpu": "3"}, priority=1))
    assert nodes_of(simulate(cluster(*objects))) == {"a": "", "b": "n"}


def test_running_pods_are_preempted() -> None:
    """A pod preempts running pods of lower priority on the node with the least important victims."""
    objects = (
        node("n"),
        node("m"),
        pod("low-0", node_name="n", requests={"cpu": "2"}),
        pod("low-1", node_name="n", requests={"cpu": "2"}),
        pod("middle", node_name="m", requests={"cpu": "4"}, priority=5),
        pod("high", requests={"cpu": "3"}, priority=10),
    )
    result = simulate(cluster(*objects))
    assert [(each.name, each.node, each.attempts) for each in result.pods] == [("high", "n", 2)]
    assert {usage.name: usage.pods for usage in result.nodes} == {"m": 1, "n": 1}


def test_running_pods_use_resources() -> None:
    """A running pod uses resources and is not scheduled again; a terminated pod is ignored."""
    objects = (
        node("n"),
        pod("runs", node_name="n", requests={"cpu": "2", "memory": "1Gi"}),
        pod("ended", node_name="n", requests={"cpu": "4"}, phase="Succeeded"),
        pod("new", requests={"cpu": "2"}),
    )
    result = simulate(cluster(*objects))
    assert (nodes_of(result), result.running) == ({"new": "n"}, 1)
    assert result.nodes == (NodeUsage("n", 2, 110, 4000, 4000, 1 << 30, 16 << 30),)


def test_a_cluster_without_nodes() -> None:
    """Without nodes every pod is unschedulable with the scheduler's message."""
    (placement,) = simulate(cluster(pod())).pods
    assert (placement.verdict, placement.reason) == (Verdict.UNSCHEDULABLE, "no nodes available to schedule pods")


def test_pods_on_unknown_nodes_are_reported() -> None:
    """A notice reports running pods whose node is not in the files."""
    result = simulate(cluster(node("n"), pod("lost", node_name="gone")))
    assert result.notices == ("1 pod is on nodes that are not in the files, such as default/lost on gone",)


def test_the_seed_resolves_ties() -> None:
    """Runs with equal seeds have equal placements, and another seed resolves ties differently."""
    objects: list[Node | Pod] = [node(f"n{number}") for number in range(16)]
    objects += [pod(f"p{number}") for number in range(8)]
    by_seed = [nodes_of(simulate(cluster(*objects), SimulationOptions(seed=seed))) for seed in (1, 1, 2)]
    assert by_seed[0] == by_seed[1] != by_seed[2]


class _Patient(PermitPlugin):
    name = "Patient"

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return no events: a pod that the plugin has rejected is not requeued for it."""
        return ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 30.0)


class _Broken(NodeFilterPlugin):
    name = "Broken"

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        if pod.pod.metadata.name == "bad":
            raise RuntimeError("no luck")
        return SUCCESS


class _EntryPoint:
    """Entry point of an installed package."""

    def __init__(self, plugin: type[PermitPlugin | NodeFilterPlugin]) -> None:
        self.name = self.value = plugin.name
        self.dist = None
        self._plugin = plugin

    def load(self) -> type[PermitPlugin | NodeFilterPlugin]:
        return self._plugin


def with_plugin(monkeypatch: pytest.MonkeyPatch, plugin: type[PermitPlugin | NodeFilterPlugin]) -> dict[str, Any]:
    """Return a profile that enables a plugin of an installed package."""

    def entry_points(*, group: str) -> list[_EntryPoint]:
        return [_EntryPoint(plugin)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    spec = {"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": plugin.name}]}}}
    return {"metadata": {"name": "p"}, "spec": spec}


def test_time_advances_while_a_pod_waits_at_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that waits at Permit is rejected after its timeout, which takes no real time."""
    profile = with_plugin(monkeypatch, _Patient)
    result = simulate(cluster(node("n"), pod(), profiles=(profile,)), SimulationOptions(patience_seconds=31))
    (placement,) = result.pods
    assert placement.verdict is Verdict.UNSCHEDULABLE
    assert "timeout after waiting 30s at plugin Patient" in present(placement.reason)
    assert result.nodes[0].pods == 0


def test_a_simulation_ends_after_the_maximum_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason of a pod that still waits at the end names the plugin."""
    profile = with_plugin(monkeypatch, _Patient)
    options = SimulationOptions(patience_seconds=29)
    (placement,) = simulate(cluster(node("n"), pod(), profiles=(profile,)), options).pods
    assert (placement.verdict, placement.node) == (Verdict.UNSCHEDULABLE, None)
    assert placement.reason == "waits at Permit on node n for Patient"


def test_a_plugin_failure_affects_one_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a plugin raises an error for a pod, the verdict is Error for that pod only."""
    profile = with_plugin(monkeypatch, _Broken)
    result = simulate(cluster(node("n"), pod("bad"), pod("good"), profiles=(profile,)))
    assert [(each.name, each.verdict) for each in result.pods] == [("bad", Verdict.ERROR), ("good", Verdict.PLACED)]
    assert "no luck" in present(result.pods[0].reason)


@table(
    "file, verdicts",
    (
        "cluster",
        "cluster.yaml",
        {Verdict.PLACED: 14, Verdict.UNSCHEDULABLE: 4, Verdict.GATED: 1, Verdict.NO_PROFILE: 1, Verdict.ERROR: 0},
    ),
    (
        "kube-scheduler",
        "kube-scheduler.yaml",
        {Verdict.PLACED: 2, Verdict.UNSCHEDULABLE: 1, Verdict.GATED: 0, Verdict.NO_PROFILE: 0, Verdict.ERROR: 0},
    ),
)
def test_the_examples_show_each_verdict(file: str, verdicts: dict[Verdict, int]) -> None:
    """The example clusters have the verdicts that their comments describe."""
    result = simulate(admit(read_cluster_files([str(EXAMPLES / file)])))
    assert {verdict: result.count(verdict) for verdict in Verdict} == verdicts


NOT_HELPFUL = " preemption: 0/9 nodes are available: 9 Preemption is not helpful."


@table(
    "message, cause",
    (
        "counted reasons",
        f"0/9 nodes are available: 2 Insufficient example.com/gpu, 7 Insufficient cpu.{NOT_HELPFUL}",
        "Insufficient cpu, Insufficient example.com/gpu",
    ),
    ("without a result of preemption", "0/12 nodes are available: 12 Insufficient cpu.", "Insufficient cpu"),
    (
        "PreFilter",
        f'0/9 nodes are available: persistentvolumeclaim "data-0" not found.{NOT_HELPFUL}',
        'persistentvolumeclaim "..." not found',
    ),
    ("comma", "0/9 nodes are available: the claim is lost, restore it.", "the claim is lost, restore it"),
    (
        "gang",
        (
            "1 of the 3 members that must be placed together fit in zone=a; with them in place, for ml/train-1: 0/3 "
            "nodes are available: 1 node(s) were outside the gang's domain zone=a, 2 Insufficient cpu."
        ),
        "no room for its gang: Insufficient cpu",
    ),
    ("Permit", "waits at Permit on node n-7 for Quota", "waits at Permit for Quota"),
    ("no nodes mentioned", "the pod is being deleted", "the pod is being deleted"),
)
def test_cause_of_a_message(message: str, cause: str) -> None:
    """A cause has no counts, no names and no result of preemption."""
    assert cause_of(message) == cause


def test_causes_are_grouped() -> None:
    """Causes are grouped by verdict, largest group first, with the first pod as example."""
    messages = (
        "0/2 nodes are available: 2 Insufficient cpu.",
        "0/3 nodes are available: 3 Insufficient cpu.",
        "failed",
    )
    verdicts = (Verdict.UNSCHEDULABLE, Verdict.UNSCHEDULABLE, Verdict.ERROR)
    pods = [
        PodPlacement("ns", f"p-{number}", "p", verdict, "", message, 1)
        for number, (verdict, message) in enumerate(zip(verdicts, messages, strict=True))
    ]
    placed = PodPlacement("ns", "placed", "p", Verdict.PLACED, "n", None, 1)
    assert rejection_causes([placed, *pods]) == (
        RejectionCause(Verdict.UNSCHEDULABLE, "Insufficient cpu", 2, "ns/p-0"),
        RejectionCause(Verdict.ERROR, "failed", 1, "ns/p-2"),
    )


def test_devices_of_preempted_pods_are_allocated_to_the_preemptor() -> None:
    """All holders of a shared claim are preempted; then its device is free."""
    objects = cluster(
        node("a"), *(holder(name, "a", "shared") for name in ("v0", "v1")), pending("high", "own"), profiles=(DEVICES,)
    )
    shown = (slice_of([device("d0")], node="a"), held("shared", "d0", "v0", "v1"), claim(exactly("r"), name="own"))
    result = simulate(replace(objects, devices=(device_class(), *shown)))
    assert [(each.name, each.node) for each in result.pods] == [("high", "a")]
    assert result.preempted == ("ns/v0", "ns/v1")


def test_a_gated_pod() -> None:
    """A gated pod is not attempted, and the reason names the gate."""
    (placement,) = simulate(cluster(node("n"), pod(gates=["example.com/wait"]))).pods
    assert (placement.verdict, placement.attempts) == (Verdict.GATED, 0)
    assert "example.com/wait" in present(placement.reason)
