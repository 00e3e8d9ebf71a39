"""Counts by topology domain."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.kernels.domain_counts import DomainTable, domain_sums, domains_present
from tests.support.tables import table

_ROWS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-(2**40), 2**40)), max_size=8)


def ids_of(*domains: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return an array of domain ids, one for each row."""
    return np.array(domains, dtype=np.int32)


@given(rows=_ROWS)
def test_sums_equal_a_plain_count(rows: list[tuple[int, int]]) -> None:
    """Sums are exact; the last slot holds the rows without a domain."""
    amounts = np.array([amount for _, amount in rows], dtype=np.int64)
    sums = domain_sums(amounts, ids_of(*(domain for domain, _ in rows)), 4)
    expected = [sum(amount for domain, amount in rows if domain == each) for each in (0, 1, 2, 3, -1)]
    assert sums.tolist() == expected
    assert sums.dtype == np.int64


@table(
    "domains, present",
    ("no-rows", (), [False, False, False]),
    ("one-domain", (1, 1), [False, True, False]),
    ("a-row-without-domain", (0, -1), [True, False, True]),
)
def test_domains_present(domains: tuple[int, ...], present: list[bool]) -> None:
    """The last slot counts rows without a domain."""
    assert domains_present(ids_of(*domains), 2).tolist() == present


def test_a_table_excludes_rows_without_domain() -> None:
    """The slot of rows without a domain holds 0."""
    table = DomainTable.of_rows(np.array([3, 4, 5], dtype=np.int32), ids_of(0, -1, 0), 1)
    assert table.counts.tolist() == [8, 0]


@table("row, changed, counts", ("a-row-with-domain", 0, True, [7, 0]), ("a-row-without-domain", 1, False, [5, 0]))
def test_add(row: int, changed: bool, counts: list[int]) -> None:
    """add() changes the count of the row's domain and returns False if the row has no domain."""
    table = DomainTable.of_rows(np.array([5, 0], dtype=np.int32), ids_of(0, -1), 1)
    assert table.add(row, 2) is changed
    assert table.counts.tolist() == counts


def test_clones_are_independent() -> None:
    """A table and its clones share counts until one of them changes."""
    table = DomainTable.of_rows(np.array([5], dtype=np.int32), ids_of(0), 1)
    first, second = table.clone(), table.clone()
    third = first.clone()
    first.add(0, 1)
    table.add(0, 10)
    found = [int(each.counts[0]) for each in (table, first, second, third)]
    assert found == [15, 6, 5, 5]
