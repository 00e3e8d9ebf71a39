"""Tests of running many cases in several processes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.parity.conformance.runs import CaseResults, run_cases
from tests.support.tables import table

MANY = 300


def write_lines(folder: Path, lines: Sequence[object]) -> str:
    """Write a file with one JSON document per line, strings unchanged, and return its path."""
    file = folder / "cases.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(file)


def case(name: str) -> dict[str, object]:
    """Return a case with a pod that fits on the only node."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    return {"name": name, "nodes": [node], "pod": {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}}


def names(results: Sequence[CaseResults]) -> list[str]:
    """Return the names of the cases with a result, in order."""
    return [json.loads(line)["name"] for each in results for line in each.output.splitlines()]


@table(
    "workers, count",
    ("one-process", 1, 30),
    ("no-cases", 2, 0),
    ("too-few-for-several-processes", 2, 30),
    ("two-processes", 2, MANY),
    ("three-processes", 3, MANY),
)
def test_results_have_the_order_of_the_lines(tmp_path: Path, workers: int, count: int) -> None:
    """Results have the order of the lines, whatever the number of processes."""
    wanted = [f"case-{number}" for number in range(count)]
    assert names(list(run_cases(write_lines(tmp_path, [case(name) for name in wanted]), workers))) == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_an_invalid_line_is_reported(tmp_path: Path, workers: int) -> None:
    """An invalid line is reported with its number and name, and the other lines have results."""
    lines: list[object] = [case(f"case-{number}") for number in range(MANY)]
    lines[200] = "{"
    lines[201] = case("odd") | {"profile": {"kind": "Nonsense"}}
    found = list(run_cases(write_lines(tmp_path, lines), workers))
    assert len(names(found)) == MANY - 2
    problems = [problem for each in found for problem in each.problems]
    assert [(number, name) for number, name, _ in problems] == [(201, ""), (202, "odd")]


def test_one_process_returns_results_line_by_line(tmp_path: Path) -> None:
    """One process returns each result before it reads the next line."""
    found = run_cases(write_lines(tmp_path, [case("first"), case("second")]))
    assert names([next(found)]) == ["first"]
