"""Long searches in a copy of the process, on a real API server."""

from __future__ import annotations

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.live_gangs import live_gangs
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("kwok"), pytest.mark.timeout(300)]
_PRIORITIES = "scheduling.k8s.io/v1"
_NODES, _MEMBERS = 12, 60
_METRIC = "bayplan_background_searches_total"


def test_a_gang_that_preempts_is_searched_in_a_copy(
    control_plane: ControlPlane, operator: OperatorProcess, namespace: str
) -> None:
    """The members of a gang differ, so that its searches are long; the victims go, all members are bound."""
    with live_gangs(control_plane, operator, namespace) as world:
        world.profile({})
        names = [f"w{number}" for number in range(_NODES)]
        world.nodes(*names, cpu="4")
        for value, name in enumerate(("low", "high"), start=1):
            world.cluster_object("PriorityClass", name, _PRIORITIES, value=value)
        low, high = ({"priorityClassName": f"{world.token}-{name}"} for name in ("low", "high"))
        for number in range(_NODES):
            world.api.create(world.member(f"low-{number}", "plain", group="", cpu="3500m", spec=low))
        for number in range(_NODES):
            world.until_scheduled(f"low-{number}")
        before = operator.metric(_METRIC, result="used")
        world.group("train", _MEMBERS)
        for number in range(_MEMBERS):
            cpu = f"{700 + number}m"
            world.api.create(world.member(f"train-{number}", "train", cpu=cpu, spec=high))
        world.until_bound("train", _MEMBERS)
        assert operator.metric(_METRIC, result="used") > before
        assert operator.metric(_METRIC, result="lost") == 0
