"""Label columns mirror the labels of all nodes, key by key."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.snapshot.label_columns import NO_VALUE, LabelColumn, LabelColumns
from tests.support.builders import node
from tests.support.columns import columns


def values_of(column: LabelColumn) -> list[str | None]:
    """The value of each row, read back from the numbers."""
    return [None if number == NO_VALUE else column.values.keys[number] for number in column.ids.tolist()]


def test_a_column_is_filled_when_it_is_first_used() -> None:
    """From the nodes that are there."""
    nodes = columns([node("a", labels={"zone": "x"}), node("b"), node("c", labels={"zone": "y"})])
    assert values_of(nodes.label_column("zone")) == ["x", None, "y"]
    assert nodes.label_column("zone") is nodes.label_column("zone")


def test_equal_values_share_a_number() -> None:
    """And different ones do not."""
    nodes = columns([node(name, labels={"zone": zone}) for name, zone in zip("abc", "xyx", strict=True)])
    first, second, third = nodes.label_column("zone").ids.tolist()
    assert first == third != second


def test_a_column_follows_its_nodes() -> None:
    """As they come, change and go."""
    nodes = columns([node("a", labels={"zone": "x"}), node("b")])
    column = nodes.label_column("zone")
    nodes.add_node(node("c", labels={"zone": "z"}))
    nodes.update_node(node("b", labels={"zone": "y"}))
    nodes.remove_node("a")
    assert values_of(column) == [None, "y", "z"]
    nodes.add_node(node("d", labels={"zone": "w"}))
    assert values_of(column) == ["w", "y", "z"]


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        pytest.param("x", "y", True, id="another-value"),
        pytest.param("x", "x", False, id="same-value"),
        pytest.param(None, None, False, id="still-none"),
        pytest.param("x", None, True, id="removed"),
        pytest.param(None, "x", True, id="added"),
        pytest.param(None, "", True, id="added-empty"),
    ],
)
def test_the_version_moves_with_values_only(before: str | None, after: str | None, changed: bool) -> None:
    """What was computed stays good while nothing changes."""
    column = LabelColumn("zone", 1)
    column.resize(1, 1)
    column.assign(0, before)
    version = column.version
    assert column.assign(0, after) is changed
    assert (column.version > version) is changed
    assert values_of(column) == [after]


def test_a_table_asks_once_per_value() -> None:
    """Its last slot answers for nodes without the key."""
    nodes = columns([node(str(row), labels={"zone": "xy"[row % 2]}) for row in range(10)] + [node("none")])
    column = nodes.label_column("zone")
    asked: list[str | None] = []

    def predicate(value: str | None) -> bool:
        asked.append(value)
        return value in ("y", None)

    table = column.table(predicate)
    assert sorted(asked, key=str) == [None, "x", "y"]
    assert table.dtype == np.bool_
    assert table[column.ids].tolist() == [False, True] * 5 + [True]


def test_a_released_number_is_not_used() -> None:
    """A table keeps its slot, which no row reaches."""
    column = LabelColumn("zone", 2)
    column.resize(2, 2)
    column.assign(0, "x")
    column.assign(1, "y")
    column.assign(0, None)
    assert column.table(lambda value: value is not None).sum() == 1


def test_ids_are_not_writeable() -> None:
    """They are handed to plugins."""
    column = columns([node("a", labels={"zone": "x"})]).label_column("zone")
    with pytest.raises(ValueError, match="read-only"):
        column.ids[0] = 5


def test_a_column_grows_with_the_nodes() -> None:
    """Without losing a value."""
    nodes = columns([node("n0", labels={"zone": "z0"})])
    column = nodes.label_column("zone")
    for row in range(1, 200):
        nodes.add_node(node(f"n{row}", labels={"zone": f"z{row}"}))
    assert values_of(column) == [f"z{row}" for row in range(200)]


_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2", ""]))


@given(st.lists(st.tuples(st.integers(0, 4), _LABELS), max_size=20))
def test_columns_equal_the_labels_after_any_changes(changes: list[tuple[int, dict[str, str]]]) -> None:
    """Also of a key that is asked for late."""
    rows: list[Mapping[str, str] | None] = [None] * 5
    labels = LabelColumns(lambda row: rows[row])
    labels.resize(8, 5)
    early = labels.column("a")
    for row, of_node in changes:
        rows[row] = of_node
        labels.assign(row, of_node)
    for column in (early, labels.column("b")):
        assert values_of(column) == [None if each is None else each.get(column.key) for each in rows]
        in_use = {value for value in values_of(column) if value is not None}
        assert {value for value in column.values.keys if value is not None} == in_use


def test_the_oldest_column_goes() -> None:
    """Keys that pods make up do not pile up, and what comes again is what the labels say now."""
    labels = {"zone": "a"}
    columns = LabelColumns(lambda _: labels, limit=2)
    columns.resize(1, 1)
    first = columns.column("zone")
    for number in range(100):
        columns.column(f"made-up-{number}")
    labels["zone"] = "b"
    again = columns.column("zone")
    assert again is not first
    assert again.values.keys[int(again.ids[0])] == "b"
    assert again.version != first.version
    assert columns.column("zone") is again
