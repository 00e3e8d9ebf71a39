"""Interners, which assign one small number to equal keys."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.snapshot.interning import (
    CPU_COLUMN,
    MEMORY_COLUMN,
    UNOFFERED_COLUMN,
    CountingInterner,
    Interner,
    LoggedInterner,
    ResourceNames,
)
from tests.support.presence import present


def test_numbers_are_assigned_in_order() -> None:
    """Keys are numbered in the order of their first use."""
    interner: Interner[str] = Interner()
    assert [interner.intern(key) for key in ("x", "y", "x", "z")] == [0, 1, 0, 2]
    assert interner.keys == ["x", "y", "z"]
    assert len(interner) == 3


def test_well_known_resources_have_their_columns() -> None:
    """The columns of cpu, memory and ephemeral-storage are constants, so that plugins need no lookup."""
    interner = ResourceNames()
    assert interner.find("cpu") == CPU_COLUMN
    assert interner.find("memory") == MEMORY_COLUMN
    assert interner.find("ephemeral-storage") == 2


def test_a_number_is_reused_after_its_last_release() -> None:
    """A number that all holders released is assigned to the next key."""
    interner: CountingInterner[str] = CountingInterner()
    first = interner.acquire("x")
    assert interner.acquire("x") == first
    interner.release(first)
    assert interner.find("x") == first
    interner.release(first)
    assert interner.find("x") is None
    assert interner.acquire("y") == first
    assert len(interner) == 1


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcd"))))
def test_holders_are_counted(steps: list[tuple[bool, str]]) -> None:
    """A key has its own number while it has a holder, and there are no more numbers than keys in use at once."""
    interner: CountingInterner[str] = CountingInterner()
    held: dict[str, list[int]] = {key: [] for key in "abcd"}
    most = 0
    for acquires, key in steps:
        if acquires:
            held[key].append(interner.acquire(key))
        elif held[key]:
            interner.release(held[key].pop())
        in_use = {key: set(numbers) for key, numbers in held.items() if numbers}
        most = max(most, len(in_use))
        assert all(len(numbers) == 1 for numbers in in_use.values())
        assert len(set().union(*in_use.values())) == len(in_use)
        for each, numbers in held.items():
            assert interner.find(each) == (numbers[0] if numbers else None)
    assert len(interner) == most


def test_only_offered_resources_have_columns() -> None:
    """A resource that no node offers has no column."""
    names = ResourceNames()
    assert names.find("example.com/gpu") is None
    assert names.offer("example.com/gpu")
    assert names.find("example.com/gpu") == len(names) - 1 == UNOFFERED_COLUMN + 1


def test_a_column_is_reused_after_its_last_offer() -> None:
    """The column of a resource that two nodes offer is released when both have withdrawn it."""
    names = ResourceNames()
    assert names.offer("example.com/a")
    assert not names.offer("example.com/a")
    column = names.find("example.com/a")
    assert names.withdraw("example.com/a") is None
    assert names.withdraw("example.com/a") == column
    version = names.version
    assert names.offer("example.com/b")
    assert names.find("example.com/b") == column
    assert names.version > version


def test_resources_beyond_the_limit_wait_for_a_column() -> None:
    """The first waiting resource is assigned the next free column."""
    names = ResourceNames(limit=3)
    assert [names.offer(f"example.com/{letter}") for letter in "abcde"] == [True, True, True, False, False]
    assert names.adopt() is None
    column = names.withdraw("example.com/b")
    assert names.adopt() == "example.com/d"
    assert names.find("example.com/d") == column
    assert names.adopt() is None
    assert len(names) == UNOFFERED_COLUMN + 1 + 3


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=200))
def test_new_keys_are_logged(steps: list[tuple[bool, str]]) -> None:
    """A reader that follows the log, and rebuilds if it is too far behind, has the current keys of all numbers."""
    interner: LoggedInterner[str] = LoggedInterner(limit=3)
    table: dict[int, str] = {}
    held: list[str] = []
    position = interner.assigned.position
    for number, (acquires, key) in enumerate(steps):
        if acquires:
            interner.acquire(key)
            held.append(key)
        elif key in held:
            held.remove(key)
            found = present(interner.find(key))
            interner.release(found)
        if number % 5 == 0:
            changed = interner.assigned.since(position)
            for each in range(len(interner)) if changed is None else changed:
                table[each] = interner.keys[each] or table.get(each, "")
            position = interner.assigned.position
            assert all(table[each] == known for each, known in enumerate(interner.keys) if known is not None)
    assert len(interner) <= 6
