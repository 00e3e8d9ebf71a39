"""Stored answers of the reference to CEL selectors of devices (``tests/parity/oracle/selectors``).

``python -m tests.parity.oracle.selector_parity`` compares any number of others.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.parity.oracle.selector_parity import answer, difference

CASES = Path(__file__).with_name("cases") / "selectors.jsonl.gz"
# The texts and positions of syntax errors depend on the recovery of the reference's parser.
COMPILE_DIFFERENCES = {"later compile errors", "compile error", "compile error position"}


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    with gzip.open(CASES, "rt") as lines:
        return [json.loads(line) for line in lines]


def test_outcomes_errors_and_costs_are_those_of_the_reference(cases: list[dict[str, Any]]) -> None:
    differing = {}
    for case in cases:
        found = difference(case["expect"], answer(case["question"]))
        if found and found not in COMPILE_DIFFERENCES:
            differing[case["question"]["expression"]] = found
    assert differing == {}


def test_most_compile_errors_are_those_of_the_reference(cases: list[dict[str, Any]]) -> None:
    failing = [case for case in cases if "compileError" in case["expect"]]
    equal = [case for case in failing if not difference(case["expect"], answer(case["question"]))]
    assert len(equal) >= 0.9 * len(failing)
