"""Filter plugins over all rows: a row has the status of the first plugin that rejects it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from scheduler_core.errors import PluginError, UndecidedRowsError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import NodeFilterPlugin, Plugin, PreFilterPlugin, PreFilterResult
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.runtime.filtering import decode_verdict, run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import rig
from tests.support.tables import table


class RejectsOdd(NodeFilterPlugin):
    """Filter plugin that rejects nodes with an odd number, one at a time, and records the calls."""

    name = "RejectsOdd"
    filtered_nodes: list[str]

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        self.filtered_nodes.append(node.name)
        return unschedulable("odd") if int(node.name[1:]) % 2 else SUCCESS


@dataclass
class Bench:
    """Plugins A, RejectsOdd and B over five nodes, of which n4 is removed."""

    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        plugins: list[type[Plugin]] = [recorder("A", self.journal), RejectsOdd, recorder("B", self.journal)]
        made = rig(plugins)
        made.add(*(node(f"n{number}") for number in range(5)))
        made.scheduler.feed.node_deleted(node("n4"))
        instance = present(made.context.profiles.get("default-scheduler"))
        self.instance: FrameworkInstance = instance
        self.nodes: NodeColumns = made.columns
        self.info = self.nodes.compile_pod(pod())
        self.state = CycleState()
        self.odd = instance.plugins["RejectsOdd"]
        assert isinstance(self.odd, RejectsOdd)
        self.odd.filtered_nodes = []

    def reasons(self, rows: Rows) -> list[str]:
        """Return ``plugin reason`` for each row, or an empty string if the row passes."""
        verdicts = run_filters(self.instance, self.state, self.info, self.nodes, rows)
        assert verdicts.dtype == np.int32
        texts = []
        for verdict in verdicts.tolist():
            status = decode_verdict(self.instance, self.state, self.info, self.nodes, verdict) if verdict else SUCCESS
            texts.append(f"{status.plugin} {status.message}".strip())
        return texts


def codes(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.array(numbers, dtype=np.int16)


def test_a_row_has_the_status_of_the_first_plugin_that_rejects_it() -> None:
    """Codes of plugins after the first rejection are ignored."""
    bench = Bench()
    bench.journal.results |= {"A.filter": codes(1, 0, 0, 0, 0), "B.filter": codes(1, 1, 1, 0, 0)}
    bench.journal.results["B.decode"] = unschedulable("b")
    assert bench.reasons(ALL_ROWS)[:4] == ["A why", "RejectsOdd odd", "B b", "RejectsOdd odd"]


def test_plugins_that_take_one_node_run_only_on_remaining_rows() -> None:
    """A plugin for single nodes is not called for rejected and unused rows."""
    bench = Bench()
    bench.journal.results["A.filter"] = codes(1, 0, 0, 1, 0)
    bench.reasons(ALL_ROWS)
    assert isinstance(bench.odd, RejectsOdd)
    assert bench.odd.filtered_nodes == ["n1", "n2"]


def test_selected_rows() -> None:
    """Results of selected rows are in the order of the rows."""
    bench = Bench()
    bench.journal.results["A.filter"] = codes(0, 1)
    assert bench.reasons(np.array([1, 2])) == ["RejectsOdd odd", "A why"]


def test_no_rows() -> None:
    """A search without rows returns no results."""
    bench = Bench()
    bench.journal.results["A.filter"] = codes()
    assert bench.reasons(np.array([], dtype=np.intp)) == []


def test_undecided_rows_that_an_earlier_plugin_rejected_are_ignored() -> None:
    """Undecided rows that are rejected or unused are ignored, as kube-scheduler does not call the plugin for them."""
    bench = Bench()
    undecided = UndecidedRowsError("B", codes(0, 7, 1, 7, 7), {7: "unreadable"})
    bench.journal.results["B.filter"] = undecided
    assert bench.reasons(ALL_ROWS)[:4] == ["", "RejectsOdd odd", "B why", "RejectsOdd odd"]


def test_an_undecided_row_ends_the_attempt() -> None:
    """The error of the first undecided row that no earlier plugin rejected is raised."""
    bench = Bench()
    undecided = UndecidedRowsError("B", codes(0, 7, 8, 7, 7), {7: "unreadable", 8: "broken"})
    bench.journal.results["B.filter"] = undecided
    with pytest.raises(PluginError, match='running "B" filter plugin: broken'):
        bench.reasons(ALL_ROWS)


@pytest.mark.parametrize("code", [1, 32767, -1, -32768])
def test_decode_gets_any_code_except_0(code: int) -> None:
    """``decode`` is called with the unchanged code of the plugin."""
    bench = Bench()
    decoded: list[int] = []

    def decode(state: CycleState, pod: PodInfo, code: int) -> Status:
        decoded.append(code)
        return unschedulable("x")

    bench.journal.results["A.filter"] = codes(code)
    bench.instance.filters[0].decode = decode  # type: ignore[method-assign]  # records the code
    assert bench.reasons(np.array([0])) == ["A x"]
    assert decoded == [code]


class ReturnsNames(PreFilterPlugin):
    """PreFilter plugin that returns the given node names."""

    name = "ReturnsNames"
    names: Any = None

    def pre_filter(self, *_: Any) -> PreFilterResult:
        return PreFilterResult(node_names=self.names)


@table("names", ("one-name", "n1"), ("list", ["n1"]), ("number", 5))
def test_only_a_set_of_node_names_is_valid(names: Any) -> None:
    """Node names that are not a set raise an error with the plugin's name."""
    made = rig([type("ReturnsNames", (ReturnsNames,), {"names": names})])
    instance = present(made.context.profiles.get("default-scheduler"))
    nodes = made.columns
    with pytest.raises(PluginError, match=r'running PreFilter plugin "ReturnsNames": .* return a frozenset of names'):
        run_pre_filters(instance, CycleState(), nodes.compile_pod(pod()), nodes)
