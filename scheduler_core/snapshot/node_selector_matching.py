"""Node selectors evaluated on columns: one bool per row.

Most conditions compare interned numbers: one value is one comparison over int32, and nothing is cached. Only conditions
on many values (Gt, Lt, long lists) use a table by value, which is cached until the column changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_core.model.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    IN,
    METADATA_NAME,
    NOT_IN,
    FieldRequirement,
    LabelRequirement,
    NodeMatcher,
    NodeTerm,
    RequiredNodeAffinity,
)
from scheduler_core.snapshot.interning import NO_VALUE, BoundedTables, LabelColumn
from scheduler_core.snapshot.node_columns import NodeColumns, Rows

Mask = NDArray[np.bool_]
"""bool per requested row."""

# Up to this number of values, comparing each is faster than a table lookup per row.
_FEW_VALUES = 3
_VALUES_OF_STEP = 12


class NodeMatching:
    """Evaluates selectors on one set of columns; results for rows without a node are undefined."""

    __slots__ = ("_tables", "nodes")

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self._tables: BoundedTables[LabelRequirement, tuple[int, Mask]] = BoundedTables(
            nodes.bounds.selector_tables, nodes.bounds.table_items
        )

    def required(self, required: RequiredNodeAffinity, rows: Rows) -> Mask | None:
        """Return where a pod's node selector and required affinity match, bool per row; None without requirements."""
        mask: Mask | None = None
        for requirement in required.node_selector:
            found = self.label(requirement, rows)
            mask = found if mask is None else np.logical_and(mask, found, out=mask)
        if required.affinity is None:
            return mask
        found = self.selector(required.affinity, rows)
        return found if mask is None else np.logical_and(mask, found, out=mask)

    def selector(self, matcher: NodeMatcher, rows: Rows) -> Mask:
        """Return where one term of a node selector matches, bool per row."""
        mask: Mask | None = None
        for term in matcher.terms:
            found = self.term(term, rows)
            mask = found if mask is None else np.logical_or(mask, found, out=mask)
        return self._constant(rows, value=False) if mask is None else mask

    def term(self, term: NodeTerm, rows: Rows) -> Mask:
        """Return where every condition of a term matches, bool per row; nowhere for an invalid term."""
        if term.problems:
            return self._constant(rows, value=False)
        mask: Mask | None = None
        for requirement in term.labels:
            found = self.label(requirement, rows)
            mask = found if mask is None else np.logical_and(mask, found, out=mask)
        for field in term.fields:
            found = self.field(field, rows)
            mask = found if mask is None else np.logical_and(mask, found, out=mask)
        return self._constant(rows, value=False) if mask is None else mask

    def label(self, requirement: LabelRequirement, rows: Rows) -> Mask:
        """Return where a condition on a label matches, bool per row; the caller may modify the array."""
        column = self.nodes.label_column(requirement.key)
        ids = column.ids[rows]
        operator = requirement.operator
        values = requirement.values
        mask: Mask
        if operator == EXISTS:
            mask = ids != NO_VALUE
        elif operator == DOES_NOT_EXIST:
            mask = ids == NO_VALUE
        elif operator not in (IN, NOT_IN) or len(values) > _FEW_VALUES:
            mask = self._table(column, requirement)[ids]
        elif operator == IN:
            mask = _among(column, values, ids)
        else:
            mask = ~_among(column, values, ids)
        return mask

    def field(self, requirement: FieldRequirement, rows: Rows) -> Mask:
        """Return where a condition on a node's field matches, bool per row."""
        if requirement.key != METADATA_NAME:
            return self._constant(rows, value=requirement.admits(""))
        row = self.nodes.row_of(requirement.value)
        mask: Mask
        if not isinstance(rows, slice):
            mask = rows != row if requirement.negated else rows == row
            return mask
        mask = np.full(self.nodes.size, requirement.negated, dtype=np.bool_)
        if row >= 0:
            mask[row] = not requirement.negated
        return mask[rows]

    def _constant(self, rows: Rows, *, value: bool) -> Mask:
        count = len(self.nodes.alive[rows]) if isinstance(rows, slice) else len(rows)
        return np.full(count, value, dtype=np.bool_)

    def _table(self, column: LabelColumn, requirement: LabelRequirement) -> Mask:
        cached = self._tables.get(requirement)
        if cached is not None and cached[0] == column.version:
            return cached[1]
        values = len(requirement.values) or len(column.values)
        self.nodes.steps.spend_stored(1 + values // _VALUES_OF_STEP)
        table = _value_table(column, requirement)
        if not self.nodes.steps.is_dry:
            # A dry run must not change what a live attempt is charged for.
            self._tables.store(requirement, len(requirement.values), (column.version, table))
        return table


def _among(column: LabelColumn, values: tuple[str, ...], ids: NDArray[np.int32]) -> Mask:
    mask: Mask | None = None
    for value in values:
        number = column.values.find(value)
        if number is not None:
            found = ids == number
            mask = found if mask is None else np.logical_or(mask, found, out=mask)
    return np.zeros(len(ids), dtype=np.bool_) if mask is None else mask


def _value_table(column: LabelColumn, requirement: LabelRequirement) -> Mask:
    if requirement.operator not in (IN, NOT_IN):
        return column.table(requirement.admits)
    # Usually fewer values are listed than interned: a condition on host names may have thousands of interned values.
    listed = requirement.operator == IN
    table = np.full(len(column.values) + 1, not listed, dtype=np.bool_)
    numbers = (column.values.find(value) for value in requirement.values)
    table[[number for number in numbers if number is not None]] = listed
    return table
