"""Label columns: the labels of all nodes, one column for each label key."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.snapshot.interning import NO_VALUE, LabelColumn, LabelColumns
from tests.support.builders import node
from tests.support.columns import columns
from tests.support.tables import table


def values_of(column: LabelColumn) -> list[str | None]:
    """Return the label value of each row."""
    return [None if number == NO_VALUE else column.values.keys[number] for number in column.ids.tolist()]


def test_a_column_is_filled_at_its_first_use() -> None:
    """A new column has the labels of all current nodes."""
    nodes = columns([node("a", labels={"zone": "x"}), node("b"), node("c", labels={"zone": "y"})])
    assert values_of(nodes.label_column("zone")) == ["x", None, "y"]
    assert nodes.label_column("zone") is nodes.label_column("zone")


def test_equal_values_share_a_number() -> None:
    """Rows with equal values have equal numbers, and rows with different values have different numbers."""
    nodes = columns([node(name, labels={"zone": zone}) for name, zone in zip("abc", "xyx", strict=True)])
    first, second, third = nodes.label_column("zone").ids.tolist()
    assert first == third != second


def test_a_column_follows_its_nodes() -> None:
    """A column follows nodes that are added, updated and removed."""
    nodes = columns([node("a", labels={"zone": "x"}), node("b")])
    column = nodes.label_column("zone")
    nodes.add_node(node("c", labels={"zone": "z"}))
    nodes.update_node(node("b", labels={"zone": "y"}))
    nodes.remove_node("a")
    assert values_of(column) == [None, "y", "z"]
    nodes.add_node(node("d", labels={"zone": "w"}))
    assert values_of(column) == ["w", "y", "z"]


@table(
    "before, after, changed",
    ("another-value", "x", "y", True),
    ("same-value", "x", "x", False),
    ("still-none", None, None, False),
    ("removed", "x", None, True),
    ("added", None, "x", True),
    ("added-empty", None, "", True),
)
def test_the_version_changes_with_values_only(before: str | None, after: str | None, changed: bool) -> None:
    """The version increases if a value changes, and does not if the value is the same."""
    column = LabelColumn("zone", 1)
    column.resize(1, 1)
    column.assign(0, before)
    version = column.version
    assert column.assign(0, after) is changed
    assert (column.version > version) is changed
    assert values_of(column) == [after]


def test_a_table_calls_the_predicate_once_per_value() -> None:
    """The last slot of a table is the result for nodes without the key."""
    nodes = columns([node(str(row), labels={"zone": "xy"[row % 2]}) for row in range(10)] + [node("none")])
    column = nodes.label_column("zone")
    evaluated: list[str | None] = []

    def predicate(value: str | None) -> bool:
        evaluated.append(value)
        return value in ("y", None)

    table = column.table(predicate)
    assert sorted(evaluated, key=str) == [None, "x", "y"]
    assert table.dtype == np.bool_
    assert table[column.ids].tolist() == [False, True] * 5 + [True]


def test_a_released_number_is_not_used() -> None:
    """The slot of a released number is False."""
    column = LabelColumn("zone", 2)
    column.resize(2, 2)
    column.assign(0, "x")
    column.assign(1, "y")
    column.assign(0, None)
    assert column.table(lambda value: value is not None).sum() == 1


def test_ids_are_not_writeable() -> None:
    """The ids are read-only because plugins receive them."""
    column = columns([node("a", labels={"zone": "x"})]).label_column("zone")
    with pytest.raises(ValueError, match="read-only"):
        column.ids[0] = 5


def test_a_column_grows_with_the_nodes() -> None:
    """Growing a column does not lose values."""
    nodes = columns([node("n0", labels={"zone": "z0"})])
    column = nodes.label_column("zone")
    for row in range(1, 200):
        nodes.add_node(node(f"n{row}", labels={"zone": f"z{row}"}))
    assert values_of(column) == [f"z{row}" for row in range(200)]


_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2", ""]))


@given(st.lists(st.tuples(st.integers(0, 4), _LABELS), max_size=20))
def test_columns_equal_the_labels_after_any_changes(changes: list[tuple[int, dict[str, str]]]) -> None:
    """A column has the current labels, whether it is created before or after the changes."""
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


def test_the_oldest_column_is_evicted() -> None:
    """Columns are bounded, and a column that is created again has the current labels."""
    labels = {"zone": "a"}
    columns = LabelColumns(lambda _: labels, limit=2)
    columns.resize(1, 1)
    first = columns.column("zone")
    for number in range(100):
        columns.column(f"key-{number}")
    labels["zone"] = "b"
    again = columns.column("zone")
    assert again is not first
    assert again.values.keys[int(again.ids[0])] == "b"
    assert again.version != first.version
    assert columns.column("zone") is again
