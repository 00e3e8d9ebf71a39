"""Third-party plugins beside reused results: the nodes that a per-node plugin is called for, and errors in reuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    NodeFilterPlugin,
    NodeScorePlugin,
    PodReads,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    Reuse,
)
from scheduler_core.framework.node_view import NodeView
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SUCCESS, Status, error, unschedulable
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, Rig, plugin_set, rig

FILTERS = ("NodeUnschedulable", "NodeAffinity", "NodeResourcesFit")


class Inspector(NodeFilterPlugin, NodeScorePlugin):
    """Notes the nodes that it is called for, and fails for some."""

    name = "Inspector"
    filtered: ClassVar[list[str]] = []
    scored: ClassVar[list[str]] = []
    broken: ClassVar[set[str]] = set()

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        self.filtered.append(node.name)
        return error(f"{node.name} cannot be inspected") if node.name in self.broken else SUCCESS

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> int:
        self.scored.append(node.name)
        return 0


def _inspected(position: int, *, remembers: bool = True) -> Rig:
    """A scheduler whose Inspector filters at a position; n0 and n1 fit, n2 is of another zone, n3 is cordoned."""
    Inspector.filtered, Inspector.scored, Inspector.broken = [], [], set()
    order = [*FILTERS[:position], Inspector.name, *FILTERS[position:]]
    plugins = Plugins(
        multi_point=plugin_set(*BARE),
        pre_filter=plugin_set("NodeAffinity", "NodeResourcesFit"),
        filter=plugin_set(*order),
        score=plugin_set("NodeResourcesFit", Inspector.name),
    )
    world = rig((Inspector,), defaults=plugins, options=SchedulerOptions(reuses_results=remembers))
    for number, zone in enumerate("aaba"):
        world.add(node(f"n{number}", labels={"zone": zone}, unschedulable=number == 3))
    return world


def _arrive(world: Rig, number: int) -> str:
    """Let one more pod of the class come; its node, or why it has none."""
    world.add(pod(f"p{number}", node_selector={"zone": "a"}, requests={"cpu": "1m"}))
    attempt = world.decide()
    return attempt.node_name if attempt is not None else world.writer.events[-1].note


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        pytest.param(0, ["n0", "n1", "n2", "n3"], id="in front of all filters"),
        pytest.param(1, ["n0", "n1", "n2"], id="behind NodeUnschedulable"),
        pytest.param(2, ["n0", "n1"], id="behind NodeAffinity"),
        pytest.param(3, ["n0", "n1"], id="behind all filters"),
    ],
)
def test_a_per_node_plugin_is_called_beside_reused_results(position: int, expected: Sequence[str]) -> None:
    """For each pod, for exactly the nodes that no filter in front of it rejects; the other plugins are not called."""
    world = _inspected(position)
    (instance,) = world.context.profiles
    for number in range(5):
        Inspector.filtered, Inspector.scored = [], []
        assert _arrive(world, number) in ("n0", "n1")
        assert Inspector.filtered == expected
        assert Inspector.scored == ["n0", "n1"]
    assert instance.evaluations.pre_filter["NodeAffinity"] == 2
    world.queue.close()


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("broken", ["n1", "n2", "n3"])
def test_a_per_node_plugin_fails_as_in_the_full_cycle(position: int, broken: str) -> None:
    """Where it is called, whatever rejects the node behind it."""
    outcomes = []
    for remembers in (True, False):
        world = _inspected(position, remembers=remembers)
        found = [_arrive(world, number) for number in range(4)]
        Inspector.broken = {broken}
        found += [_arrive(world, number) for number in range(4, 7)]
        outcomes.append(found)
        world.queue.close()
    assert outcomes[0] == outcomes[1]


class Fickle(FilterPlugin, PreFilterPlugin):
    """Lets every pod pass; raises when it is called for one row, or when its reuse check is requested."""

    name = "Fickle"
    reuse = Reuse(filter=Reads.NODE | Reads.PODS, pod=PodReads.NOTHING)
    check_raises: ClassVar[bool] = False

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        return PreFilterResult()

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool]:
        if self.check_raises:
            raise RuntimeError("no check today")
        return always

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return None

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        raise (
            ValueError("one row is too few") if self.check_raises else PluginError(self.name, "filter", "no single row")
        )

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("never")


@pytest.mark.parametrize(
    ("check_raises", "plugin"), [pytest.param(False, "Fickle", id="plugin"), pytest.param(True, "", id="other")]
)
def test_an_error_in_reuse_falls_back(
    check_raises: bool, plugin: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pod gets its node from the full cycle; errors are counted, and the first is logged."""
    monkeypatch.setattr(Fickle, "check_raises", check_raises)
    world = rig((Fickle,), defaults=Plugins(multi_point=plugin_set("NodeResourcesFit", Fickle.name, *BARE)))
    world.add(*(node(f"n{number}") for number in range(3)))
    for number in range(9):
        world.add(pod(f"p{number}"))
        assert world.decide() is not None
    errors = world.context.metrics.profiles["default-scheduler"].reuse_errors
    assert list(errors) == [plugin]
    assert errors[plugin] > 1
    logged = [record for record in caplog.records if "reuse of results failed" in record.message]
    assert len(logged) == 1
    world.queue.close()
