"""Native PodGroups of Kubernetes 1.37 on a real API server: quorum, condition, preemption and unsupported fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import Manifest, condition_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import NATIVE_GROUPS
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300)]
GROUPS = NATIVE_GROUPS["1.37"]
NAMESPACE = "default"
PRIORITY = 100

plane = module_plane(ControlPlane.start_kwok, options=GROUPS.options)


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[LiveGangs]:
    """Create a profile and two PriorityClasses."""
    with live_gangs(plane, operator, NAMESPACE) as world:
        world.cluster_object("PriorityClass", "high", "scheduling.k8s.io/v1", value=PRIORITY)
        world.cluster_object("PriorityClass", "never", "scheduling.k8s.io/v1", value=PRIORITY, preemptionPolicy="Never")
        # When the profile is live, admission has the classes.
        world.profile({})
        yield world


def gang(world: LiveGangs, name: str, least: int, **spec: Any) -> None:
    """Create a native group with a quorum."""
    world.group(name, 0, GROUPS.api_version, schedulingPolicy={"gang": {"minCount": least}}, **spec)


def members(world: LiveGangs, of: str, count: int, *, first: int = 0, **spec: Any) -> None:
    """Create members of a native group."""
    world.job(of, count, first=first, group="", spec={"schedulingGroup": {"podGroupName": of}, **spec})


def condition(world: LiveGangs, name: str) -> Manifest:
    """Return the condition of a group, or an empty one if it has none."""
    return condition_of(world.stored_group(name, GROUPS.api_version), GROUPS.condition)


def test_before_and_after_the_quorum(world: LiveGangs) -> None:
    """The condition is absent before an attempt, False with kube-scheduler's message if it fails, then True."""
    world.nodes("a", cpu="2")
    gang(world, "train", 3)
    members(world, "train", 2)
    world.pod("plain", cpu="0")
    world.until_scheduled("plain")
    assert (world.bound("train"), condition(world, "train")) == ({}, {})
    members(world, "train", 1, first=2)
    world.until(lambda: condition(world, "train").get("status") == "False", "the attempt has failed")
    failed = condition(world, "train")
    assert failed["reason"] == "Unschedulable"
    quorum, _, own = failed["message"].partition("; ")
    no_victims = "pod group preemption: No preemption victims found for incoming preemptor"
    assert quorum == f"minCount (3) cannot be satisfied: 2 scheduled, 0 remaining, {no_victims}"
    assert own.startswith("2 of the 3 members that must be placed together fit")
    assert world.bound("train") == {}
    world.nodes("b", cpu="1")
    world.until_bound("train", 3)
    world.until(lambda: condition(world, "train").get("status") == "True", "the condition is True")
    scheduled = condition(world, "train")
    assert (scheduled["reason"], scheduled["message"]) == ("Scheduled", "")
    world.delete("train-0")
    members(world, "train", 1, first=3, nodeSelector={"for": "no-node"})
    world.until(lambda: world.condition("train-3").get("status") == "False", "the replacement does not fit")
    assert condition(world, "train") == scheduled


def test_a_smaller_quorum(world: LiveGangs) -> None:
    """``minCount`` is mutable: the gang is attempted when it is lowered."""
    world.nodes("a", cpu="2")
    gang(world, "shrinks", 3)
    members(world, "shrinks", 2)
    group = {"apiVersion": GROUPS.api_version, "kind": "PodGroup"}
    metadata = {"name": "shrinks", "namespace": NAMESPACE}
    policy = {"gang": {"minCount": 2}}
    world.api.patch(group | {"metadata": metadata}, {"spec": {"schedulingPolicy": policy}})
    world.until_bound("shrinks", 2)


def test_a_group_that_is_evicted_whole(world: LiveGangs) -> None:
    """A gang of higher priority evicts all members of a group with mode ``all``, on all nodes, or none."""
    world.nodes("a", "b", cpu="1")
    gang(world, "low", 2, disruptionMode={"all": {}})
    members(world, "low", 2)
    world.until_bound("low", 2)
    high = f"{world.token}-high"
    never = f"{world.token}-never"
    gang(world, "polite", 1, priorityClassName=never, preemptionPolicy="Never")
    members(world, "polite", 1, priorityClassName=never)
    world.until(lambda: condition(world, "polite").get("status") == "False", "the gang is unschedulable")
    assert len(world.bound("low")) == 2
    gang(world, "urgent", 1, priorityClassName=high)
    members(world, "urgent", 1, priorityClassName=high)
    world.until_bound("urgent", 1)
    world.until(lambda: not world.bound("low"), "all members of the group are evicted")


def test_members_of_another_priority(world: LiveGangs) -> None:
    """A gang whose members have another priority than the group fails with kube-scheduler's error."""
    world.nodes("a", cpu="2")
    gang(world, "mixed", 2)
    members(world, "mixed", 2, priorityClassName=f"{world.token}-high")
    world.until(lambda: condition(world, "mixed").get("reason") == "SchedulerError", "the attempt ends in an error")
    expected = "all pods in a single pod group should have the same priority as the pod group's priority, got 100 and 0"
    assert condition(world, "mixed")["message"] == expected
    assert world.bound("mixed") == {}


def test_a_gang_preempts_in_its_topology_domain(world: LiveGangs) -> None:
    """A gang with a topology constraint preempts, as in v1.37, and its members share the domain."""
    world.nodes("x", "y", cpu="1", zone="near")
    world.nodes("z", cpu="1", zone="far")
    gang(world, "spread", 3)
    members(world, "spread", 3)
    world.until_bound("spread", 3)
    high = f"{world.token}-high"
    topology = {"topology": [{"key": "zone"}]}
    gang(world, "tight", 2, priorityClassName=high, schedulingConstraints=topology)
    members(world, "tight", 2, priorityClassName=high)
    assert set(world.until_bound("tight", 2).values()) == {f"{world.token}-x", f"{world.token}-y"}


@table(
    "spec, field",
    (
        "group of groups",
        {"parentCompositePodGroupName": "all", "workloadRef": {"workloadName": "work", "templateName": "workers"}},
        "spec.parentCompositePodGroupName: groups of groups are not supported",
    ),
    (
        "claims",
        {"resourceClaims": [{"name": "gpus", "resourceClaimName": "gpus"}]},
        "spec.resourceClaims: resource claims of groups are not supported",
    ),
)
def test_unsupported_fields(world: LiveGangs, spec: Manifest, field: str) -> None:
    """Pods of a group with an unsupported field are gated; pod, group, event and explain name the field."""
    world.nodes("a", cpu="2")
    # No controller removes the finalizers of native groups here, so a name can be used once.
    name = f"held-{field.partition(':')[0].rpartition('.')[2].lower()}"
    gang(world, name, 1, **spec)
    members(world, name, 1)
    message = world.until_rejected(f"{name}-0", field)
    assert world.condition(f"{name}-0")["reason"] == "SchedulingGated"
    world.until(lambda: message in world.event_notes(f"{name}-0", "FailedScheduling"), "an event has the same message")
    world.until(lambda: field in condition(world, name).get("message", ""), "the group's condition names the field")
    assert condition(world, name)["reason"] == "SchedulerError"
    status, explained = world.operator.get(f"/debug/explain?namespace={NAMESPACE}&pod={name}-0")
    assert (status, field in explained) == (200, True)
    assert world.bound(name) == {}
