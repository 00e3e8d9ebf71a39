"""Third-party plugins and reused results: calls of plugins for single nodes, and errors during reuse."""

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
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SUCCESS, Status, error, unschedulable
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, Rig, plugin_set, rig
from tests.support.tables import table

FILTERS = ("NodeUnschedulable", "NodeAffinity", "NodeResourcesFit")


class Inspector(NodeFilterPlugin, NodeScorePlugin):
    """Plugin for single nodes that records its calls, and fails for some nodes."""

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


def _rig_with_inspector(position: int, *, reuses_results: bool = True) -> Rig:
    """Return a scheduler with the Inspector at a position of the filters; n2 is in another zone, and n3 is cordoned."""
    Inspector.filtered, Inspector.scored, Inspector.broken = [], [], set()
    order = [*FILTERS[:position], Inspector.name, *FILTERS[position:]]
    plugins = Plugins(
        multi_point=plugin_set(*BARE),
        pre_filter=plugin_set("NodeAffinity", "NodeResourcesFit"),
        filter=plugin_set(*order),
        score=plugin_set("NodeResourcesFit", Inspector.name),
    )
    world = rig((Inspector,), defaults=plugins, options=SchedulerOptions(reuses_results=reuses_results))
    for number, zone in enumerate("aaba"):
        world.add(node(f"n{number}", labels={"zone": zone}, unschedulable=number == 3))
    return world


def _schedule(world: Rig, number: int) -> str:
    """Schedule one more pod of the class; return its node, or the message if it has none."""
    world.add(pod(f"p{number}", node_selector={"zone": "a"}, requests={"cpu": "1m"}))
    attempt = world.decide()
    return attempt.node_name if attempt is not None else world.writer.events[-1].note


@table(
    "position, expected",
    ("before all filters", 0, ["n0", "n1", "n2", "n3"]),
    ("after NodeUnschedulable", 1, ["n0", "n1", "n2"]),
    ("after NodeAffinity", 2, ["n0", "n1"]),
    ("after all filters", 3, ["n0", "n1"]),
)
def test_a_plugin_for_single_nodes_is_called_for_each_pod(position: int, expected: Sequence[str]) -> None:
    """For each pod the plugin is called for the nodes that no earlier filter rejects; other plugins are not called."""
    world = _rig_with_inspector(position)
    (instance,) = world.context.profiles
    for number in range(5):
        Inspector.filtered, Inspector.scored = [], []
        assert _schedule(world, number) in ("n0", "n1")
        assert Inspector.filtered == expected
        assert Inspector.scored == ["n0", "n1"]
    assert instance.evaluations.pre_filter["NodeAffinity"] == 2


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("broken", ["n1", "n2", "n3"])
def test_a_plugin_for_single_nodes_fails_as_in_the_full_cycle(position: int, broken: str) -> None:
    """With and without reuse, an error for a node has the same result, whichever later filter rejects the node."""
    outcomes = []
    for reuses_results in (True, False):
        world = _rig_with_inspector(position, reuses_results=reuses_results)
        found = [_schedule(world, number) for number in range(4)]
        Inspector.broken = {broken}
        found += [_schedule(world, number) for number in range(4, 7)]
        outcomes.append(found)
        world.queue.close()
    assert outcomes[0] == outcomes[1]


class NoSingleRows(FilterPlugin, PreFilterPlugin):
    """Filter plugin that accepts every pod, but raises in ``filter_row`` or in ``reuse_check``."""

    name = "NoSingleRows"
    reuse = Reuse(filter=Reads.NODE | Reads.PODS, pod=PodReads.NOTHING)
    check_raises: ClassVar[bool] = False

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        return PreFilterResult()

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool]:
        if self.check_raises:
            raise RuntimeError("no check")
        return always

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return None

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, row: int) -> int:
        raise (
            ValueError("one row is too few") if self.check_raises else PluginError(self.name, "filter", "no single row")
        )

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return unschedulable("never")


@table(
    "check_raises, plugin", ("filter_row-raises", False, "NoSingleRows"), ("reuse_check-raises", True, "NoSingleRows")
)
def test_an_error_during_reuse_falls_back_to_the_full_cycle(
    check_raises: bool, plugin: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error during reuse a pod is scheduled by the full cycle; errors are counted, and the first is logged."""
    monkeypatch.setattr(NoSingleRows, "check_raises", check_raises)
    world = rig((NoSingleRows,), defaults=Plugins(multi_point=plugin_set("NodeResourcesFit", NoSingleRows.name, *BARE)))
    world.add(*(node(f"n{number}") for number in range(3)))
    for number in range(9):
        world.add(pod(f"p{number}"))
        assert world.decide() is not None
    errors = world.context.metrics.profiles["default-scheduler"].reuse_errors
    assert list(errors) == [plugin]
    assert errors[plugin] > 1
    logged = [record for record in caplog.records if "reuse of results failed" in record.message]
    assert len(logged) == 1
