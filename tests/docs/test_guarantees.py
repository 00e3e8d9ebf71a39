"""docs/guarantees.md names faults, tests and violations for each guarantee; the tests and seeds that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.markdown import ROOT
from tests.simulation import test_regressions
from tests.support.presence import present

TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
SEARCH = "How violations are searched for"
GUARANTEES = [name for name in SECTIONS if name != SEARCH]
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", TEXT)))
COLUMNS = "| violation | found by | repaired | kept out by |"


@cache
def functions(path: str) -> set[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_")}


@pytest.mark.parametrize("test", [pytest.param(test, id=test) for test in TESTS])
def test_a_named_test_exists(test: str) -> None:
    """A test that the page names is a test of that file; a file without a name has tests."""
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file()
    assert name in functions(path) if name else functions(path)


@pytest.mark.parametrize("guarantee", [pytest.param(name, id=name) for name in GUARANTEES])
def test_a_guarantee_is_complete(guarantee: str) -> None:
    """A guarantee has its faults and at least two tests; each violation has its finder, date and test."""
    section = SECTIONS[guarantee]
    assert re.search(r"^\*Under\* ", section, re.MULTILINE)
    checked = present(re.search(r"^\*Checked by\* (.*?)\n\n", f"{section}\n\n", re.MULTILINE | re.DOTALL))
    assert len(re.findall(r"`tests/", checked[1])) >= 2
    finders = set(re.findall(r"^\| (\w+) \| [a-z]", SECTIONS[SEARCH], re.MULTILINE))
    for row in section.partition(COLUMNS)[2].splitlines()[2:]:
        if row.startswith("|"):
            _, found, repaired, kept_out = (cell.strip() for cell in row.strip("|").split(" | "))
            assert found in finders
            assert re.match(r"\d{4}-\d\d-\d\d", repaired)
            assert "`tests/" in kept_out


def test_named_seeds_are_run() -> None:
    """Each seed that the page names is a row of the regression tests, and their number is right."""
    marks = [
        mark
        for mark in vars(test_regressions.test_a_fixed_bug_does_not_return)["pytestmark"]
        if mark.name == "parametrize"
    ]
    seeds = {param.values[0] for param in marks[0].args[1]}
    named = {int(seed) for text in re.findall(r"seeds? ([\d, and]+) of", TEXT) for seed in re.findall(r"\d+", text)}
    assert len(named) > 10
    assert named <= seeds
    assert f"{len(seeds)} seeds)" in TEXT


def test_the_list_of_guarantees_is_complete() -> None:
    """The list at the top of the page links every guarantee."""
    assert re.findall(r"^- \[(.+?)\]\(#", TEXT, re.MULTILINE) == GUARANTEES
