"""Pods that plugins add to podsToActivate are activated when the attempt progresses, not when it fails."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult, PostBindPlugin
from scheduler_core.framework.pods_to_activate import pods_to_activate
from scheduler_core.framework.status import SUCCESS, unschedulable
from scheduler_core.in_tree import default_plugins
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, default_rig, plugin_set, profile
from tests.support.tables import table

SIBLING = pod("sibling", requests={"cpu": "100"})


class ActivatesSibling(PermitPlugin, PostBindPlugin):
    """Plugin that adds the sibling to podsToActivate at the extension point in the pod's label."""

    name = "ActivatesSibling"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Add the sibling if the label has this point, and reject pods with the label ``refused``."""
        self._activate(state, pod, "permit")
        refused = "refused" in pod.pod.metadata.labels
        return PermitResult(unschedulable("not now") if refused else SUCCESS)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Add the sibling if the label has this point."""
        self._activate(state, pod, "postBind")

    def _activate(self, state: CycleState, pod: PodInfo, point: str) -> None:
        if pod.pod.metadata.labels.get("names-at") == point:
            sibling = self.handle.nodes.compile_pod(SIBLING)
            pods_to_activate(state).add(sibling)


@pytest.fixture
async def world() -> Rig:
    made = default_rig(plugins=[ActivatesSibling], serve=False)
    points = {"permit": plugin_set("ActivatesSibling"), "post_bind": plugin_set("ActivatesSibling")}
    made.serve(profile(plugins=default_plugins().model_copy(update=points)))
    made.add(node("a"), SIBLING)
    assert await made.attempt() == ""
    assert made.place_of(SIBLING) == "unschedulable"
    return made


@table(
    "labels, after_cycle, at_the_end",
    ("added in the scheduling cycle", {"names-at": "permit"}, "active", "active"),
    ("added in the binding cycle", {"names-at": "postBind"}, "unschedulable", "active"),
    ("failed attempt", {"names-at": "permit", "refused": ""}, "unschedulable", "unschedulable"),
)
async def test_added_pods_are_activated(world: Rig, labels: dict[str, str], after_cycle: str, at_the_end: str) -> None:
    """Added pods are activated after the scheduling cycle and after PostBind, unless the attempt fails."""
    world.add(pod("first", labels=labels))
    attempt = world.decide()
    assert world.place_of(SIBLING) == after_cycle
    if attempt is not None:
        assert await world.scheduler.cycles.binding.bind(attempt)
    assert world.place_of(SIBLING) == at_the_end


COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


def test_pods_are_taken_once() -> None:
    """Pods are returned once, in the order in which they were added."""
    state = CycleState()
    for each in (WEB, DB, WEB):
        pods_to_activate(state).add(each)
    assert pods_to_activate(state).take() == (WEB.uid, DB.uid)
    assert pods_to_activate(state).take() == ()
    pods_to_activate(state).add(DB)
    assert pods_to_activate(state).take() == (DB.uid,)


def test_a_dry_run_adds_pods_for_its_attempt() -> None:
    """A cloned state shares the list with its original."""
    state = CycleState()
    pods_to_activate(state)
    pods_to_activate(state.clone()).add(WEB)
    assert pods_to_activate(state).take() == (WEB.uid,)
