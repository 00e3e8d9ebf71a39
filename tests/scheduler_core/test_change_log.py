"""The change log, which returns the changes since a position, or None if the position is too old."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.change_log import ChangeLog


def test_since_returns_later_changes() -> None:
    """Changes are returned in order, and a row that changed twice occurs twice."""
    log = ChangeLog[int](10)
    log.append(7)
    position = log.position
    for row in (3, 5, 3):
        log.append(row)
    assert log.since(position) == [3, 5, 3]
    assert log.since(log.position) == []


def test_a_position_that_is_too_old() -> None:
    """``since`` returns None if changes were dropped, so that the reader must rebuild."""
    log = ChangeLog[int](limit=2)
    for row in range(4):
        log.append(row)
    assert log.since(0) is None
    assert log.since(1) is None
    assert log.since(2) == [2, 3]


def test_a_change_of_everything_makes_all_earlier_positions_too_old() -> None:
    """After ``append_all`` all earlier positions are too old, also the last one."""
    log = ChangeLog[str](limit=2)
    log.append("a")
    log.append_all()
    assert log.since(1) is None
    assert log.since(log.position) == []
    log.append("b")
    assert log.since(2) == ["b"]


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=60))
def test_the_log_is_bounded_and_complete(limit: int, rows: list[int]) -> None:
    """Returned changes are complete, and the last ``limit`` changes are always available."""
    log = ChangeLog[int](limit)
    for count, row in enumerate(rows, start=1):
        log.append(row)
        assert log.position == count
        for position in range(count + 1):
            since = log.since(position)
            assert since == rows[position:count] or (since is None and position < count - limit)
    assert log.since(max(0, len(rows) - 2 * limit - 1)) is None or len(rows) <= 2 * limit
