"""Interners give equal keys one small number."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.snapshot.interning import (
    CPU_COLUMN,
    EPHEMERAL_STORAGE_COLUMN,
    MEMORY_COLUMN,
    OTHER_RESOURCES,
    CountingInterner,
    Interner,
    ResourceNames,
)


def test_numbers_count_up_and_stay() -> None:
    """In the order of first use."""
    interner: Interner[str] = Interner()
    assert [interner.intern(key) for key in ("x", "y", "x", "z")] == [0, 1, 0, 2]
    assert interner.keys == ["x", "y", "z"]
    assert len(interner) == 3
    assert interner.find("y") == 1
    assert interner.find("unknown") is None
    assert len(interner) == 3


def test_well_known_resources_have_their_columns() -> None:
    """So that plugins need not look them up."""
    interner = ResourceNames()
    assert interner.find("cpu") == CPU_COLUMN
    assert interner.find("memory") == MEMORY_COLUMN
    assert interner.find("ephemeral-storage") == EPHEMERAL_STORAGE_COLUMN
    assert interner.intern("example.com/gpu") == 3


def test_a_number_is_given_back_by_its_last_holder() -> None:
    """And then given to the next key."""
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
    """A key has a number of its own as long as someone holds it; numbers stay few."""
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


def test_resources_beyond_the_limit_share_a_column() -> None:
    """However many resources pods name, they take so many columns and one more; known ones keep theirs."""
    names = ResourceNames(limit=5)
    known = [names.intern(name) for name in ("example.com/a", "example.com/b")]
    others = {names.intern(f"example.com/more-{number}") for number in range(1000)}
    assert known == [3, 4]
    assert others == {5}
    assert names.keys[5] == OTHER_RESOURCES
    assert names.intern("example.com/a") == 3
