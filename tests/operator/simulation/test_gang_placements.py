"""Tests of gangs in simulations."""

from __future__ import annotations

import pytest
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.simulation import GangPlacement, Verdict, simulate

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import group, members


def simulate_objects(*objects: Node | Pod | PodGroup) -> tuple[dict[str, GangPlacement], dict[str, str]]:
    """Return the placements of gangs, and the nodes of pending pods."""
    cluster = AdmittedCluster(
        nodes=tuple(each for each in objects if isinstance(each, Node)),
        pods=tuple(each for each in objects if isinstance(each, Pod)),
        groups=tuple(each for each in objects if isinstance(each, PodGroup)),
    )
    result = simulate(cluster)
    return {gang.name: gang for gang in result.gangs}, {pod.name: pod.node for pod in result.pods}


def test_gangs_are_scheduled_completely_or_not() -> None:
    """If two gangs do not both fit, the older one is scheduled completely, and no member of the other."""
    gangs, nodes = simulate_objects(
        small_node("n", 3), group("a", 2), group("b", 2), *members(2, "a"), *members(2, "b")
    )
    assert (gangs["a"].placed, gangs["a"].phase, gangs["a"].reason) == (2, "Scheduled", "")
    assert (gangs["b"].placed, gangs["b"].phase) == (0, "Scheduling")
    assert gangs["b"].reason.startswith("1 of the 2 members that must be placed together fit; ")
    assert nodes == {"a-0": "n", "a-1": "n", "b-0": "", "b-1": ""}


def test_the_domain_of_a_gang() -> None:
    """The domain of a gang is the one in which all members are scheduled."""
    topology = GroupTopology("zone")
    gangs, _ = simulate_objects(
        small_node("a", 1, zone="a"), small_node("b", 2, zone="b"), group(min_member=2, topology=topology), *members(2)
    )
    assert (gangs["train"].domain, gangs["train"].placed) == ("zone=b", 2)


def test_a_gang_preempts() -> None:
    """A gang preempts running pods of lower priority."""
    gangs, nodes = simulate_objects(
        small_node("n"), running_pod("v0", "n"), running_pod("v1", "n"), group(min_member=2), *members(2, priority=9)
    )
    assert gangs["train"].placed == 2
    assert nodes == {"train-0": "n", "train-1": "n"}


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param(
            (group(min_member=3), *members(2)), "2 of 3 members exist; 1 more is needed.", id="too few members"
        ),
        pytest.param(
            members(2), "the PodGroup is not in the files; its members wait for it", id="without its PodGroup"
        ),
    ],
)
def test_gangs_that_are_not_attempted(objects: tuple[Pod | PodGroup, ...], reason: str) -> None:
    """A gang that is not attempted has a reason, and no member is scheduled."""
    gangs, nodes = simulate_objects(small_node("n", 9), *objects)
    assert gangs["train"].reason == reason
    assert set(nodes.values()) == {""}


def test_members_of_gangs_that_are_not_attempted_are_gated() -> None:
    """The verdict of a member of a gang that is not attempted is Gated."""
    cluster = AdmittedCluster(nodes=(small_node("n"),), pods=tuple(members(1)), groups=(group(min_member=2),))
    (pod,) = simulate(cluster).pods
    assert (pod.verdict, pod.reason) == (
        Verdict.GATED,
        "waits for gang default/train: 1 of 2 members exist; 1 more is needed.",
    )
