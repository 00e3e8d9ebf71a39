"""Native gangs while the API server is upgraded from Kubernetes 1.36 to 1.37 and downgraded, on the same etcd."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.api_client import Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import NATIVE_GROUPS, NativeGroups
from tests.cluster.test_native_gangs import members
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
OLDER, NEWER = NATIVE_GROUPS["1.36"], NATIVE_GROUPS["1.37"]
NAMESPACE = "default"

plane = module_plane(options=OLDER.options)


def gang(world: LiveGangs, version: str, name: str) -> None:
    """Create a native group with a quorum of three."""
    world.group(name, 0, version, schedulingPolicy={"gang": {"minCount": 3}})


def remove_groups(world: LiveGangs, version: str) -> None:
    """Remove finalizers and delete the groups of a version that the other release cannot read."""
    path = f"/apis/{version}/namespaces/{NAMESPACE}/podgroups"
    for group in world.api.items(path):
        body: Manifest = {"apiVersion": version, "kind": "PodGroup", "metadata": group["metadata"]}
        world.api.remove_finalizers(body)
        world.api.delete(body)
    world.until(lambda: world.api.items(path) == [], "the groups are deleted")


def change_release(plane: ControlPlane, groups: NativeGroups, operator: OperatorProcess) -> None:
    """Stop the API server, start one of another release with the same data, and wait until its groups are listed.

    The other release has its own feature gates and versions.
    """
    plane.stop_apiserver()
    before = times_listed(operator, groups)
    gates, versions = groups.feature_gates, groups.runtime_config
    plane.options = replace(plane.options, feature_gates=gates, runtime_config=versions)
    plane.start_apiserver(groups.kubernetes)
    version: dict[str, Any] = json.loads(plane.kubectl("get", "--raw", "/version"))
    assert f"{version['major']}.{version['minor']}" == groups.kubernetes
    operator.until(lambda: times_listed(operator, groups) > before, "the groups are listed")


def times_listed(operator: OperatorProcess, groups: NativeGroups) -> int:
    """Return how often the groups were listed in a version."""
    return operator.log.count(f"Listed the PodGroups of {groups.api_version}")


def test_the_version_that_is_served_is_read(plane: ControlPlane, tmp_path: Path) -> None:
    """After each change of the release, a gang is gated until its members exist, and then bound, without a restart."""
    with OperatorProcess(plane.kubeconfig, tmp_path / "operator.log") as operator:
        operator.start()
        operator.until(lambda: times_listed(operator, OLDER) > 0, "the groups are listed")
        with live_gangs(plane, operator, NAMESPACE) as world:
            world.profile({})
            world.nodes("a", "b", cpu="9")
            for number, groups in enumerate((OLDER, NEWER, OLDER)):
                name = f"train-{number}"
                if number:
                    change_release(plane, groups, operator)
                members(world, name, 2)
                gang(world, groups.api_version, name)
                world.pod(f"plain-{number}", cpu="0")
                world.until_scheduled(f"plain-{number}")
                assert world.bound(name) == {}
                members(world, name, 1, first=2)
                world.until_bound(name, 3)
                remove_groups(world, groups.api_version)
