"""Tests that Bayplan decides cases like kube-scheduler v1.37.1, whose results are stored.

Each case runs like ``python -m tests.parity.conformance`` and is compared like ``make parity``. The file ``bent`` has
cases with features of several families and rare notations (``tests/parity/oracle/generation/bending.py``).
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scheduler_core.in_tree import in_tree_registry
from tests.parity.conformance.cases import IN_TREE_NAMES, read_lines
from tests.parity.conformance.runs import answer
from tests.parity.oracle.agreement import ASPECTS, aspects_of, differences
from tests.parity.oracle.generation.families import FAMILIES

CASES = Path(__file__).parent / "cases"
CASES_PER_FAMILY = 60
FILES = [*FAMILIES, "bent"]
BEHIND_GATES = {"GangScheduling", "PodGroupPodsCount", "TopologyPlacementGenerator"}
Result = dict[str, Any]


class Pair(NamedTuple):
    """Results of kube-scheduler and of Bayplan."""

    expected: Result
    actual: Result | None


@lru_cache
def pairs(file: str) -> tuple[Pair, ...]:
    """Run a file of cases and return both results of each."""
    lines = list(read_lines(str(CASES / f"{file}.jsonl.gz")))
    results = answer(enumerate(lines, start=1))
    assert not results.problems
    actual = {result["name"]: result for result in map(json.loads, results.output.splitlines())}
    expected = [json.loads(line)["expect"] for line in lines]
    return tuple(Pair(result, actual.get(result["name"])) for result in expected)


@pytest.mark.parametrize("aspect", list(ASPECTS))
@pytest.mark.parametrize("file", FILES)
def test_decisions_equal_kube_scheduler(file: str, aspect: str) -> None:
    """All cases of a file agree in an aspect."""
    found = [each for pair in pairs(file) for each in differences(*pair) if each.aspect == aspect]
    assert not found, "\n".join(f"{each.name}: want {each.expected}, have {each.actual}" for each in found[:3])


@pytest.mark.parametrize("aspect", list(ASPECTS))
def test_every_aspect_is_compared(aspect: str) -> None:
    """The cases exercise each aspect many times."""
    compared = sum(aspect in aspects_of(pair.expected) for file in FILES for pair in pairs(file))
    assert compared >= CASES_PER_FAMILY // 2


@pytest.mark.parametrize("file", FILES)
def test_files_have_enough_cases(file: str) -> None:
    """A file has at least the number of cases of a family."""
    assert len(pairs(file)) >= CASES_PER_FAMILY


def test_every_plugin_is_registered() -> None:
    """Every plugin that the reference has without feature gates is registered."""
    assert IN_TREE_NAMES - set(in_tree_registry()) <= BEHIND_GATES
