"""Data that plugins store during one scheduling attempt."""

from __future__ import annotations

import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState, StateKey
from scheduler_core.framework.object_reads import NodeView
from tests.support.builders import node, pod
from tests.support.columns import columns

NUMBER: StateKey[int] = StateKey("Plugin/number")


class Counted:
    def __init__(self, count: int) -> None:
        self.count = count

    def clone(self) -> Counted:
        return Counted(self.count)


COUNTED: StateKey[Counted] = StateKey("Plugin/counted")
NAMES: StateKey[list[str]] = StateKey("Plugin/names")


def test_read_returns_the_last_written_value() -> None:
    """A second write replaces the value."""
    state = CycleState()
    state.write(NUMBER, 1)
    state.write(NUMBER, 2)
    assert (state.read(NUMBER), state.get(NUMBER)) == (2, 2)


def test_read_without_a_write_raises() -> None:
    """``read`` raises an error that names plugin and key; ``get`` returns None."""
    state = CycleState()
    assert state.get(NUMBER) is None
    with pytest.raises(
        PluginError, match=r'plugin "Plugin" failed at cycleState: no "Plugin/number".*enable'
    ) as raised:
        state.read(NUMBER)
    assert raised.value.plugin == "Plugin"


def test_a_falsy_value_can_be_stored() -> None:
    """A stored 0 is not treated as missing."""
    state = CycleState()
    state.write(NUMBER, 0)
    assert state.read(NUMBER) == 0


def test_clone() -> None:
    """Values with ``clone`` are cloned, others are shared, and the sets of skipped plugins are copied."""
    state = CycleState()
    state.write(COUNTED, Counted(1))
    state.write(NAMES, ["a"])
    state.skip_filter.add("A")
    copy = state.clone()
    copy.read(COUNTED).count = 2
    copy.skip_filter.add("B")
    copy.skip_score.add("C")
    copy.skip_pre_bind.add("D")
    copy.write(NUMBER, 1)
    assert state.read(COUNTED).count == 1
    assert copy.read(NAMES) is state.read(NAMES)
    assert (state.skip_filter, state.skip_score, state.skip_pre_bind) == ({"A"}, set(), set())
    assert copy.skip_filter == {"A", "B"}
    assert state.get(NUMBER) is None


def test_a_view_reads_the_columns() -> None:
    """A view returns amounts in the scheduler's units, and 0 for resources that the node does not have."""
    viewed = node("n1", labels={"zone": "a"}, allocatable={"cpu": "2", "memory": "1Gi", "example.com/gpu": 4})
    filled = columns([node("n0"), viewed], [pod("web", node_name="n1", requests={"cpu": "500m"})])
    view = NodeView(filled, 1, viewed)
    assert (view.name, view.labels, view.row) == ("n1", {"zone": "a"}, 1)
    assert [info.key for info in view.pods] == ["default/web"]
    assert (view.allocatable("cpu"), view.requested("cpu")) == (2000, 500)
    assert (view.allocatable("example.com/gpu"), view.requested("example.com/gpu")) == (4, 0)
    assert view.allocatable("example.com/unknown") == 0
