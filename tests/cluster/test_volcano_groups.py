"""Volcano's PodGroups on a real API server: API objects as LeaderWorkerSet and Volcano's controllers write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.live_gangs import LiveGangs, live_gangs
from tests.support.live_servers import VOLCANO_GROUPS, definitions, module_plane
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
VERSION = "scheduling.volcano.sh/v1beta1"
OPERATOR_FLAGS = ("--feature-gates=VolcanoPodGroups=true",)

plane = module_plane(definitions(VOLCANO_GROUPS))


class VolcanoGangs(LiveGangs):
    """:class:`LiveGangs` whose pods name a PodGroup of Volcano."""

    def volcano_pods(self, name: str, *numbers: int, **spec: Any) -> None:
        """Create pods of a group."""
        for number in numbers:
            pod = self.member(f"{name}-{number}", name, group="", spec=spec)
            pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
            self.api.create(pod)


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[VolcanoGangs]:
    """Create a profile, and a node with room for four pods."""
    with live_gangs(plane, operator, "default") as made:
        world = VolcanoGangs(made.api, operator, "default")
        world.profile({})
        world.nodes("a", cpu="4")
        yield world
        world.clean_up()


def test_all_or_nothing(world: VolcanoGangs) -> None:
    """Pods wait for the PodGroup and the quorum, and are bound together; the queue is ignored with a note."""
    world.volcano_pods("mpi", 0, 1)
    world.until_rejected("mpi-0", "PodGroup default/mpi of scheduling.volcano.sh")
    world.group("mpi", 3, VERSION, queue="research", minResources={"cpu": "3"})
    world.until(lambda: "its queue research is ignored" in world.operator.log, "the PodGroup is read")
    assert world.bound("mpi") == {}
    world.volcano_pods("mpi", 2)
    world.until_bound("mpi", 3)


def test_a_gang_that_does_not_fit(world: VolcanoGangs) -> None:
    """No pod of a gang that does not fit is bound."""
    world.group("wide", 5, VERSION)
    world.volcano_pods("wide", *range(5))
    world.until_rejected("wide-4", "4 of the 5 members")
    assert world.bound("wide") == {}


def test_priority_classes(world: VolcanoGangs) -> None:
    """The PriorityClass of the PodGroup counts, also if it is created later."""
    world.volcano_pods("low", 0, 1, 2)
    world.group("low", 3, VERSION)
    world.until_bound("low", 3)
    name = f"{world.token}-high"
    world.group("high", 3, VERSION, priorityClassName=name)
    world.volcano_pods("high", 0, 1, 2, terminationGracePeriodSeconds=0)
    world.until_rejected("high-0")
    world.cluster_object("PriorityClass", "high", "scheduling.k8s.io/v1", value=1000)
    world.until_rejected("high-0", "preempting: 2 pods")


@table(
    "spec, field",
    ("minimum of each task", {"minTaskMember": {"ps": 1}}, "spec.minTaskMember"),
    ("subgroups", {"subGroupPolicy": [{"subGroupSize": 1}]}, "spec.subGroupPolicy"),
    ("hard topology", {"networkTopology": {"highestTierAllowed": 2}}, "spec.networkTopology"),
)
def test_what_is_not_supported(world: VolcanoGangs, spec: dict[str, Any], field: str) -> None:
    """A constraint that Bayplan cannot obey holds the pods, with the field in their condition."""
    world.group("odd", 1, VERSION, **spec)
    world.volcano_pods("odd", 0)
    world.until_rejected("odd-0", field)
    world.until(lambda: world.status("odd", VERSION).get("phase") == "Pending", "the phase is Pending")


def test_the_status(world: VolcanoGangs) -> None:
    """The status follows the gang, from missing members to a bound quorum; it is written to the object itself."""
    uid = world.group("train", 5, VERSION)
    world.until(lambda: world.status("train", VERSION).get("phase") == "Inqueue", "controllers may create the pods")
    world.volcano_pods("train", *range(5))
    world.until(lambda: _condition(world) == ("Unschedulable", "Unschedulable"), "the attempt is reported")
    world.nodes("b", cpu="1")
    world.until(lambda: world.status("train", VERSION).get("phase") == "Running", "the quorum is bound")
    assert _condition(world) == ("Scheduled", "Scheduled")
    events = world.api.items(f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    shown = [each["reason"] for each in events if each["regarding"].get("uid") == uid]
    assert shown == ["FailedScheduling", "Scheduled"]


def _condition(world: VolcanoGangs) -> tuple[str, str] | None:
    conditions = world.status("train", VERSION).get("conditions", ())
    return next(((each["type"], each["reason"]) for each in conditions), None)
