"""One cluster with the PodGroups of three APIs: unchanged manifests of the other two, and the output of kubectl."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import Manifest, condition_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.live_servers import SCHEDULER_PLUGINS_GROUPS, definitions, module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300)]
GROUPS = native_groups()
SCHEDULER_PLUGINS, NATIVE = "scheduling.x-k8s.io/v1alpha1", GROUPS.api_version
NAMESPACE = "default"
NARROW = 80

plane = module_plane(definitions(SCHEDULER_PLUGINS_GROUPS), ControlPlane.start_kwok, options=GROUPS.options)
"""It serves the PodGroups of all three APIs."""


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[LiveGangs]:
    """Create a profile, and a node with room for four members."""
    with live_gangs(plane, operator, NAMESPACE) as world:
        world.profile({})
        world.nodes("a", cpu="4")
        yield world


# -- scheduler-plugins -------------------------------------------------------------------------------------------------


def joins(group: str) -> Manifest:
    """Return the fields of a pod that joins a scheduler-plugins PodGroup."""
    return {"group": "", "labels": {"scheduling.x-k8s.io/pod-group": group}}


def test_scheduler_plugins_manifests_work_unchanged(world: LiveGangs) -> None:
    """A gang of scheduler-plugins is bound all or nothing, and its status has every phase and count."""
    world.group("nginx", 3, SCHEDULER_PLUGINS, scheduleTimeoutSeconds=30)
    world.job("nginx", 2, **joins("nginx"))
    world.until(lambda: world.status("nginx", SCHEDULER_PLUGINS).get("phase") == "Pending", "the group is pending")
    assert world.bound("nginx") == {}
    world.job("nginx", 1, first=2, **joins("nginx"))

    def status() -> dict[str, Any]:
        return world.status("nginx", SCHEDULER_PLUGINS)

    world.until(
        lambda: (status().get("phase"), status().get("running")) == ("Running", 3), "the status counts 3 running"
    )
    assert status()["occupiedBy"] == f"{NAMESPACE}/nginx"
    assert (status()["succeeded"], status()["failed"]) == (0, 0)
    assert status()["scheduleStartTime"]
    world.complete("nginx")
    world.until(lambda: status().get("phase") == "Finished", "the group is finished")
    world.until(lambda: (status().get("running"), status().get("succeeded")) == (0, 3), "the status counts 3 succeeded")


def test_groups_of_the_same_name_in_two_apis(world: LiveGangs) -> None:
    """Groups with the same name in two APIs are two gangs: members of one do not count for the other."""
    world.group("same", 2, SCHEDULER_PLUGINS)
    world.group("same", 2)
    world.job("theirs", 1, **joins("same"))
    world.job("ours", 1, group="same")
    world.until(lambda: "1 of 2 members exist" in world.message("same"), "the status counts one member")
    assert world.bound() == {}
    world.job("ours", 1, first=1, group="same")
    world.until_bound("ours", 2)
    assert world.bound("theirs") == {}
    world.job("theirs", 1, first=1, **joins("same"))
    world.until_bound("theirs", 2)


# -- Kubernetes --------------------------------------------------------------------------------------------------------


def scheduled_condition(world: LiveGangs, name: str) -> Manifest:
    """Return the condition of a native group, or an empty one if it has none."""
    return condition_of(world.stored_group(name, NATIVE), GROUPS.condition)


def native(group: str) -> Manifest:
    """Return the fields of a pod that joins a native group."""
    return {"group": "", "spec": {"schedulingGroup": {"podGroupName": group}}}


def test_native_manifests_work_unchanged(world: LiveGangs) -> None:
    """A native gang is bound all or nothing by ``spec.schedulingGroup``, and its condition reports both results."""
    world.group("workers", 0, NATIVE, schedulingPolicy={"gang": {"minCount": 5}})
    world.job("workers", 5, **native("workers"))
    infeasible = "4 of the 5 members that must be placed together fit"
    world.until(
        lambda: infeasible in scheduled_condition(world, "workers").get("message", ""), "the gang is unschedulable"
    )
    condition = scheduled_condition(world, "workers")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert world.bound("workers") == {}
    world.nodes("b", cpu="1")
    world.until_bound("workers", 5)
    world.until(lambda: scheduled_condition(world, "workers").get("status") == "True", "the condition is True")


def test_a_native_domain_is_required(world: LiveGangs) -> None:
    """All members share a zone as the native constraint requires, though another node has room too."""
    world.nodes("z1", "z2", cpu="2", zone="z")
    constraint = {"topology": [{"key": "zone"}]}
    world.group("tight", 0, NATIVE, schedulingPolicy={"gang": {"minCount": 4}}, schedulingConstraints=constraint)
    world.job("tight", 4, **native("tight"))
    assert set(world.until_bound("tight", 4).values()) == {f"{world.token}-z1", f"{world.token}-z2"}


# -- output of kubectl -------------------------------------------------------------------------------------------------


def test_the_table_of_groups(world: LiveGangs, plane: ControlPlane) -> None:
    """``kubectl get bpg`` prints one line of at most 80 characters for each of Bayplan's groups, and no other group."""
    world.group("other-api", 2, SCHEDULER_PLUGINS)
    world.group("other-api", 0, NATIVE, schedulingPolicy={"gang": {"minCount": 2}})
    wanted = {
        "train-runs": ["Running", "3", "3", "3", "Scheduled"],
        "train-waits": ["Scheduling", "2", "2", "0", "Unschedulable"],
        "train-incomplete": ["Pending", "4", "1", "0", "MembersMissing"],
        "train-without-pods": ["Pending", "1", "0", "0", "MembersMissing"],
    }
    for name, (_, needed, members, *_) in wanted.items():
        world.group(name, int(needed))
        world.job(name, int(members))
        if name == "train-runs":
            world.until_bound(name, 3)

    def rows() -> dict[str, list[str]]:
        lines = plane.kubectl("get", "bpg", f"--namespace={NAMESPACE}").splitlines()
        return {line.split()[0]: line.split()[1:-1] for line in lines[1:]}

    world.until(lambda: rows() == wanted, f"the table is {wanted}")
    for resource in ("bpg", "podgroups.bayplan.dev"):
        header, *lines = plane.kubectl("get", resource, f"--namespace={NAMESPACE}").splitlines()
        assert header.split() == ["NAME", "PHASE", "MIN", "PODS", "BOUND", "REASON", "AGE"]
        assert {line.split()[0] for line in lines} == set(wanted)
        assert [line for line in (header, *lines) if len(line.rstrip()) > NARROW] == []
        assert all(re.fullmatch(r"\d+[smh](\d+s)?", line.split()[-1]) for line in lines)


def test_the_wide_table_has_the_message(world: LiveGangs, plane: ControlPlane) -> None:
    """``kubectl get bpg -o wide`` prints why the gang is unschedulable."""
    world.group("waits", 5)
    world.job("waits", 5)
    world.until_reason("waits", "Unschedulable")
    table = plane.kubectl("get", "bpg", "waits", "-o", "wide", f"--namespace={NAMESPACE}")
    assert "4 of the 5 members that must be placed together fit" in table
    assert "1 Insufficient cpu" in table
