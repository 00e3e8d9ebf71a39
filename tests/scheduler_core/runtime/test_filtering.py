"""Filter over all rows: the first plugin in order that rejects a row owns the rejection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from scheduler_core.errors import PluginError, UndecidedRowsError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import NodeFilterPlugin, Plugin, PreFilterPlugin, PreFilterResult
from scheduler_core.framework.node_view import NodeView
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.runtime.filtering import decode_verdict, run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import rig


class OddOnes(NodeFilterPlugin):
    """Rejects nodes with an odd number, one at a time, and records the nodes."""

    name = "OddOnes"
    asked: list[str]

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        self.asked.append(node.name)
        return unschedulable("odd") if int(node.name[1:]) % 2 else SUCCESS


@dataclass
class Bench:
    """Plugins A, OddOnes and B over five nodes, of which n4 was removed."""

    journal: Journal = field(default_factory=Journal)

    def __post_init__(self) -> None:
        plugins: list[type[Plugin]] = [recorder("A", self.journal), OddOnes, recorder("B", self.journal)]
        made = rig(plugins)
        made.add(*(node(f"n{number}") for number in range(5)))
        made.scheduler.feed.node_deleted(node("n4"))
        instance = made.context.profiles.get("default-scheduler")
        assert instance is not None
        self.instance: FrameworkInstance = instance
        self.nodes: NodeColumns = made.context.cache.columns
        self.info = self.nodes.compile_pod(pod())
        self.state = CycleState()
        self.odd = instance.plugins["OddOnes"]
        assert isinstance(self.odd, OddOnes)
        self.odd.asked = []

    def reasons(self, rows: Rows) -> list[str]:
        """Return ``plugin reason`` of each row, "" where it passes."""
        verdicts = run_filters(self.instance, self.state, self.info, self.nodes, rows)
        assert verdicts.dtype == np.int32
        texts = []
        for verdict in verdicts.tolist():
            status = decode_verdict(self.instance, self.state, self.info, verdict) if verdict else SUCCESS
            texts.append(f"{status.plugin} {status.message}".strip())
        return texts


def codes(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    return np.array(numbers, dtype=np.int16)


def test_the_first_plugin_in_order_owns_the_rejection() -> None:
    """Codes of later plugins do not matter."""
    bench = Bench()
    bench.journal.results |= {"A.filter": codes(1, 0, 0, 0, 0), "B.filter": codes(1, 1, 1, 0, 0)}
    bench.journal.results["B.decode"] = unschedulable("b")
    assert bench.reasons(ALL_ROWS)[:4] == ["A why", "OddOnes odd", "B b", "OddOnes odd"]


def test_plugins_that_take_one_node_run_only_on_remaining_rows() -> None:
    """Rejected and unused rows cost no Python call."""
    bench = Bench()
    bench.journal.results["A.filter"] = codes(1, 0, 0, 1, 0)
    bench.reasons(ALL_ROWS)
    assert isinstance(bench.odd, OddOnes)
    assert bench.odd.asked == ["n1", "n2"]


def test_selected_rows() -> None:
    """Results are in the order of the rows."""
    bench = Bench()
    bench.journal.results["A.filter"] = codes(0, 1)
    assert bench.reasons(np.array([1, 2])) == ["OddOnes odd", "A why"]


def test_no_rows() -> None:
    """A restricted search may have no rows."""
    bench = Bench()
    bench.journal.results["A.filter"] = codes()
    assert bench.reasons(np.array([], dtype=np.intp)) == []


def test_undecided_rows_that_an_earlier_plugin_rejected_do_not_matter() -> None:
    """Nor do unused rows: in kube-scheduler the plugin would not be called for them."""
    bench = Bench()
    undecided = UndecidedRowsError("B", codes(0, 7, 1, 7, 7), {7: "unreadable"})
    bench.journal.results["B.filter"] = undecided
    assert bench.reasons(ALL_ROWS)[:4] == ["", "OddOnes odd", "B why", "OddOnes odd"]


def test_an_undecided_row_that_is_reached_ends_the_attempt() -> None:
    """The error contains the plugin's problem with that row."""
    bench = Bench()
    undecided = UndecidedRowsError("B", codes(0, 7, 8, 7, 7), {7: "unreadable", 8: "broken"})
    bench.journal.results["B.filter"] = undecided
    with pytest.raises(PluginError, match='running "B" filter plugin: broken'):
        bench.reasons(ALL_ROWS)


@pytest.mark.parametrize("code", [1, 32767, -1, -32768])
def test_any_code_but_0_is_the_plugins_own(code: int) -> None:
    """The plugin gets its code back unchanged."""
    bench = Bench()
    seen: list[int] = []

    def decode(state: CycleState, pod: PodInfo, code: int) -> Status:
        seen.append(code)
        return unschedulable("x")

    bench.journal.results["A.filter"] = codes(code)
    bench.instance.filters[0].decode = decode  # type: ignore[method-assign]  # to see the number
    assert bench.reasons(np.array([0])) == ["A x"]
    assert seen == [code]


class Narrowing(PreFilterPlugin):
    """Returns the given names."""

    name = "Narrowing"
    names: Any = None

    def pre_filter(self, *_: Any) -> PreFilterResult:
        return PreFilterResult(node_names=self.names)


@pytest.mark.parametrize(
    "names", [pytest.param("n1", id="one-name"), pytest.param(["n1"], id="list"), pytest.param(5, id="number")]
)
def test_only_a_set_of_names_narrows(names: Any) -> None:
    """Anything else is an error that names the plugin, not a search of nodes called "n" and "1"."""
    made = rig([type("Narrowing", (Narrowing,), {"names": names})])
    instance = made.context.profiles.get("default-scheduler")
    assert instance is not None
    nodes = made.context.cache.columns
    with pytest.raises(PluginError, match=r'running PreFilter plugin "Narrowing": .* return a frozenset of names'):
        run_pre_filters(instance, CycleState(), nodes.compile_pod(pod()), nodes)
