"""Numbers of waiting pods by what they wait for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from scheduler_core.cycle.scheduling_cycle import SchedulingCycle
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup
from tests.support.builders import pod
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import add_groups, group, member, members, settle
from tests.support.scheduling import default_rig, gang_rig
from tests.support.tables import table

OF_THREE = group(min_member=3)
# Members whose priority is not that of their group are an error, as in kube-scheduler.
UNIFORM = group(min_member=2, priority=1, is_uniform=True)
WAITS_FOR_GATED = group(min_member=2, waits_for_gated=True)
GATE = ["example.com/quota"]
NODE, SMALL, LARGE = small_node("n"), pod("p", requests={"cpu": "1"}), {"cpu": "3"}
PREEMPTOR_AND_VICTIM = [running_pod("low", "n", cpus=2), pod("high", requests={"cpu": "2"}, priority=9)]


@table(
    "groups, objects, runs, expected",
    ("attempt", [], [NODE, SMALL], False, {("attempt", ""): 1}),
    ("room", [], [NODE, pod("p", requests=LARGE), pod("q", requests=LARGE)], True, {("room", ""): 2}),
    ("gang-without-room", [OF_THREE], [NODE, *members(4)], True, {("room", ""): 4}),
    ("preemption", [], [NODE, *PREEMPTOR_AND_VICTIM], True, {("preemption", ""): 1}),
    (
        "other-than-nodes",
        [OF_THREE],
        [NODE, *members(3, node_selector={"kubernetes.io/hostname": "gone"})],
        True,
        {("other_than_nodes", ""): 3},
    ),
    ("no-node", [], [SMALL], True, {("room", ""): 1}),
    ("error", [UNIFORM], [NODE, *members(2, priority=2)], True, {("error", ""): 2}),
    ("quorum", [OF_THREE], [NODE, *members(2)], True, {("quorum", ""): 2}),
    (
        "gated-member",
        [WAITS_FOR_GATED],
        [NODE, *members(2), member("train-2", gates=GATE)],
        True,
        {("gated_member", ""): 2, ("gate", "SchedulingGates"): 1},
    ),
    ("gang-to-attempt", [OF_THREE], [NODE, *members(4)], False, {("attempt", ""): 4}),
    ("no-pod-group", [], [NODE, *members(2)], True, {("gate", "GangScheduling"): 2}),
    ("scheduling-gates", [], [NODE, pod("p", gates=GATE)], True, {("gate", "SchedulingGates"): 1}),
    ("another-scheduler", [], [NODE, pod("p", scheduler_name="other")], True, {}),
)
async def test_causes(
    groups: Sequence[PodGroup], objects: Sequence[Node | Pod], runs: bool, expected: dict[tuple[str, str], int]
) -> None:
    """Each waiting pod counts for one cause, and all of them are counted."""
    made = gang_rig()
    add_groups(made, *groups)
    made.add(*objects)
    if runs:
        await settle(made)
    found = made.queue.readings.causes(made.queue.nominator.node_by_uid)
    assert {(cause.value, plugin): count for (cause, plugin), count in found.items() if count} == expected
    assert sum(found.values()) == len(made.queue.readings)


async def test_an_error_of_a_pod_with_a_nomination(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that keeps its nomination after an error of the scheduler counts once, as an error."""
    made = default_rig(NODE)
    await settle(made, *PREEMPTOR_AND_VICTIM)
    nominated = made.queue.nominator.node_by_uid
    assert list(nominated) == [pod("high").metadata.uid]

    def raise_error(*_: object) -> None:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(SchedulingCycle, "conclude", raise_error)
        made.queue.activate(list(nominated))
        await settle(made)
    found = made.queue.readings.causes(made.queue.nominator.node_by_uid)
    assert {(cause.value, plugin): count for (cause, plugin), count in found.items() if count} == {("error", ""): 1}
