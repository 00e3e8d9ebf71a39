"""Tests of CEL device selectors with stored results of the reference (``tests/parity/oracle/selectors``).

``python -m tests.parity.oracle.selector_parity`` compares any number of further selectors.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.parity.oracle.selector_parity import COMPILE_DIFFERENCES, SelectorTally, difference, evaluate
from tests.support.tables import table

CASES = Path(__file__).with_name("cases")


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    """Return random selectors, and calls of each function on values of each type."""
    found = []
    for name in ("selectors", "functions"):
        with gzip.open(CASES / f"{name}.jsonl.gz", "rt") as lines:
            found += [json.loads(line) for line in lines]
    return found


def test_outcomes_errors_and_costs_are_those_of_the_reference(cases: list[dict[str, Any]]) -> None:
    """Outcomes, errors and costs of all stored selectors equal the reference's."""
    differing = {}
    for case in cases:
        found = difference(case["expect"], evaluate(case["question"]))
        if found and found not in COMPILE_DIFFERENCES:
            differing[case["question"]["expression"]] = found
    assert differing == {}


def test_most_compile_errors_are_those_of_the_reference(cases: list[dict[str, Any]]) -> None:
    """At least 90 % of the compile errors equal the reference's."""
    failing = [case for case in cases if "compileError" in case["expect"]]
    equal = [case for case in failing if not difference(case["expect"], evaluate(case["question"]))]
    assert len(equal) >= 0.9 * len(failing)


@table(
    "expression, actual, agrees",
    ("equal", "true", {"match": True, "cost": 1}, True),
    ("cost", "true", {"match": True, "cost": 2}, False),
    ("match", "true", {"match": False, "cost": 1}, False),
    ("outcome", "true", {"runtimeError": "x"}, False),
    ("cost of random order", "device.attributes.all(d, true)", {"match": True, "cost": 2}, True),
    ("random order, match", "device.attributes.all(d, true)", {"match": False, "cost": 1}, False),
)
def test_a_difference_fails_the_comparison(expression: str, actual: dict[str, Any], agrees: bool) -> None:
    """The comparison fails if the outcome or the cost differs, but costs of random order are ignored."""
    tally = SelectorTally()
    tally.add({"expression": expression}, {"match": True, "cost": 1}, actual)
    assert tally.agrees is agrees


def test_texts_of_compile_errors_may_differ() -> None:
    """A different text of a compile error does not fail the comparison."""
    tally = SelectorTally()
    tally.add({"expression": "("}, {"compileError": "ERROR: <input>:1:2: a"}, {"compileError": "ERROR: <input>:1:3: a"})
    assert tally.agrees
    assert "equal" not in tally.differences


def test_a_panic_of_the_reference_is_not_compared() -> None:
    """A selector on which the reference panics is counted and not compared."""
    tally = SelectorTally()
    tally.add({"expression": "true"}, {"runtimeError": "panic: index out of range"}, {"compileError": "x"})
    assert tally.panics == 1
    assert not tally.agrees
