"""The stores of verdicts and derived values: what was used longest ago is evicted, and their size is bounded."""

from __future__ import annotations

import inspect
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.devices.behaviours import KnowledgeBounds
from scheduler_core.devices.records import SelectedFacts
from scheduler_core.devices.selector_cache import DerivedAttributes, SelectorCache, SizedCache, Store, Verdict
from scheduler_core.model.devices import Device, DeviceAttribute
from tests.support.tables import table

DRIVER = "gpu.example.com"
FACTS = [
    SelectedFacts(number, DRIVER, Device("", {"uuid": DeviceAttribute(string_value=f"u{number}")}, {}))
    for number in range(6)
]
EXPRESSIONS = [
    *((f'device.attributes["{DRIVER}"].uuid != "u{number}"',) for number in range(4)),
    (f'device.attributes["{DRIVER}"].uuid', "true"),
    ("device.driver ==",),
    (f'device.attributes["{DRIVER}"].none == 1',),
]


def selecting(name: str) -> tuple[str, ...]:
    """Return selectors that differ by name, and whose compiled form is small."""
    return (f'device.driver != "{name}"',)


def test_what_was_used_longest_ago_is_evicted() -> None:
    """Selectors that are used all the time stay; the others, one after the other, are evicted."""
    cache = SelectorCache(SizedCache(30_000))
    assert cache.verdict(selecting("hot"), FACTS[0]).matches
    for number in range(200):
        cache.verdict(selecting(f"cold{number}"), FACTS[0])
        cache.verdict(selecting("hot"), FACTS[0])
    assert cache.evaluations == 201
    cache.verdict(selecting("cold0"), FACTS[0])
    assert cache.evaluations == 202


@table("pad", ("short", 0), ("long", 9_000))
def test_the_size_is_bounded_whatever_the_selectors_are(pad: int) -> None:
    """Thousands of different selectors are stored within the bound."""
    bound = 4 << 20
    store: Store = SizedCache(bound)
    cache, derived = SelectorCache(store), DerivedAttributes(store)
    largest = 0
    for number in range(400):
        expression = f'device.driver + "{number}{"x" * pad}"'
        cache.verdict((f'{expression} != ""',), FACTS[0])
        derived.value(expression, FACTS[0])
        largest = max(largest, store.stored_bytes)
    assert bound // 4 < largest <= bound


@given(
    st.lists(st.tuples(st.sampled_from(EXPRESSIONS), st.sampled_from(FACTS)), max_size=40),
    st.sampled_from((0, 3_000, 20_000, 1 << 20)),
)
def test_an_evicted_verdict_is_computed_again(uses: list[tuple[tuple[str, ...], SelectedFacts]], bound: int) -> None:
    """With any bound, verdicts and values are those of a new store, and the bound is kept after every use."""
    store: Store = SizedCache(bound)
    cache, derived = SelectorCache(store), DerivedAttributes(store)
    for expressions, facts in uses:
        assert cache.verdict(expressions, facts) == SelectorCache().verdict(expressions, facts)
        assert derived.value(expressions[0], facts) == DerivedAttributes().value(expressions[0], facts)
        assert store.stored_bytes <= bound


def test_one_bound_for_decisions_and_dry_runs() -> None:
    """The caches of both together keep the bound, and dry runs evict nothing that decisions use."""
    bound = 1 << 20
    devices = ClusterDevices.empty(bounds=KnowledgeBounds(verdict_bytes=bound))
    devices.knowledge.selectors.verdict(selecting("hot"), FACTS[0])
    for knowledge in (devices.dry_knowledge, devices.knowledge):
        for number in range(400):
            knowledge.selectors.verdict(selecting(f"{number}{'x' * 900}"), FACTS[0])
            knowledge.attributes.derived.value(f'device.driver + "{number}"', FACTS[0])
        if knowledge is devices.dry_knowledge:
            evaluations = devices.knowledge.selectors.evaluations
            devices.knowledge.selectors.verdict(selecting("hot"), FACTS[0])
            assert devices.knowledge.selectors.evaluations == evaluations
    stored = [knowledge.store.stored_bytes for knowledge in (devices.knowledge, devices.dry_knowledge)]
    assert min(stored) > bound // 8
    assert sum(stored) <= bound


def test_a_verdict_that_is_stored_is_not_evaluated_again() -> None:
    """Devices that are equal in what the selectors read share a verdict."""
    cache = SelectorCache()
    for facts in FACTS:
        assert cache.verdict(selecting("other"), facts) == Verdict(matches=True)
    assert cache.evaluations == 1


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 12), st.booleans()), max_size=60), st.integers(0, 20))
def test_a_sized_cache_equals_its_model(operations: list[tuple[str, int, bool]], bound: int) -> None:
    """Entries are those that a list in the order of use has, after the first ones are dropped to the bound."""
    cache: SizedCache[str, int] = SizedCache(bound)
    model: list[tuple[str, int, int]] = []
    for number, (key, size, is_put) in enumerate(operations):
        known = next((each for each in model if each[0] == key), None)
        if is_put:
            cache.put(key, number, size)
            model = [each for each in model if each[0] != key] + [(key, number, size)]
            while sum(each[2] for each in model) > bound:
                model.pop(0)
        else:
            assert cache.get(key) == (None if known is None else known[1])
            if known is not None:
                model = [each for each in model if each is not known] + [known]
        assert cache.stored_bytes == sum(each[2] for each in model) <= bound
        assert len(cache) == len(model)


def _depth() -> int:
    frame, depth = inspect.currentframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


@pytest.mark.parametrize("expression", ['device.driver == "gpu.example.com"', "!" * 40 + "!(false && true)"])
def test_an_exhausted_stack_is_no_error_of_the_expression(expression: str) -> None:
    """A verdict is not stored that depends on how deep the caller was."""
    limit, interrupted = sys.getrecursionlimit(), 0
    right = SelectorCache().verdict((expression,), FACTS[0])
    for room in range(10, 80):
        cache = SelectorCache()
        sys.setrecursionlimit(_depth() + room)
        try:
            assert cache.verdict((expression,), FACTS[0]) == right
        except RecursionError:
            interrupted += 1
        finally:
            sys.setrecursionlimit(limit)
        assert cache.verdict((expression,), FACTS[0]) == right
    assert interrupted
