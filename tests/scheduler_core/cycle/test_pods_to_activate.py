"""Pods that plugins add to podsToActivate are activated when the attempt progresses, not when it fails."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult, PostBindPlugin
from scheduler_core.framework.pods_to_activate import pods_to_activate
from scheduler_core.framework.status import SUCCESS, unschedulable
from scheduler_core.in_tree import default_plugins
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, plugin_set, profile, rig

SIBLING = pod("sibling", requests={"cpu": "100"})


class Naming(PermitPlugin, PostBindPlugin):
    """Names the sibling at the point in the pod's label; rejects the pod with that label."""

    name = "Naming"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Name it, or not."""
        self._name(state, pod, "permit")
        refused = "refused" in pod.pod.metadata.labels
        return PermitResult(unschedulable("not now") if refused else SUCCESS)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Name it, or not."""
        self._name(state, pod, "postBind")

    def _name(self, state: CycleState, pod: PodInfo, point: str) -> None:
        if pod.pod.metadata.labels.get("names-at") == point:
            sibling = self.handle.nodes.compile_pod(SIBLING)
            pods_to_activate(state).add(sibling)


@pytest.fixture
async def world() -> Rig:
    made = rig([Naming], defaults=default_plugins(), serve=False)
    points = {"permit": plugin_set("Naming"), "post_bind": plugin_set("Naming")}
    made.serve(profile(plugins=default_plugins().model_copy(update=points)))
    made.add(node("a"), SIBLING)
    assert await made.attempt() == ""
    assert made.place(SIBLING) == "unschedulable"
    return made


@pytest.mark.parametrize(
    ("labels", "after_cycle", "at_the_end"),
    [
        pytest.param({"names-at": "permit"}, "active", "active", id="named in the scheduling cycle"),
        pytest.param({"names-at": "postBind"}, "unschedulable", "active", id="named in the binding cycle"),
        pytest.param({"names-at": "permit", "refused": ""}, "unschedulable", "unschedulable", id="the attempt fails"),
    ],
)
async def test_named_pods_are_activated(world: Rig, labels: dict[str, str], after_cycle: str, at_the_end: str) -> None:
    """After the scheduling cycle and after PostBind."""
    world.add(pod("first", labels=labels))
    attempt = world.decide()
    assert world.place(SIBLING) == after_cycle
    if attempt is not None:
        assert await world.scheduler.cycles.binding.bind(attempt)
    assert world.place(SIBLING) == at_the_end
