"""Tests of running many cases."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from bayplan.conformance.run import CaseResults, run_cases

MANY = 300


def a_file(folder: Path, lines: Sequence[object]) -> str:
    """Write a file with one JSON document per line; strings are written as they are."""
    file = folder / "cases.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(file)


def a_case(name: str) -> dict[str, object]:
    """Return a case with a pod that fits on the only node."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    return {"name": name, "nodes": [node], "pod": {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}}


def names(results: Sequence[CaseResults]) -> list[str]:
    """Return the names of the cases with a result, in order."""
    return [json.loads(line)["name"] for each in results for line in each.output.splitlines()]


@pytest.mark.parametrize(
    ("workers", "count"),
    [
        pytest.param(1, 30, id="this-process-alone"),
        pytest.param(2, 0, id="nothing-to-do"),
        pytest.param(2, 30, id="too-few-to-spread"),
        pytest.param(2, MANY, id="two-processes"),
        pytest.param(3, MANY, id="three-processes"),
    ],
)
def test_results_come_in_the_order_of_the_lines(tmp_path: Path, workers: int, count: int) -> None:
    """The order does not depend on the number of processes."""
    wanted = [f"case-{number}" for number in range(count)]
    assert names(list(run_cases(a_file(tmp_path, [a_case(name) for name in wanted]), workers))) == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_line_does_not_stop_the_others(tmp_path: Path, workers: int) -> None:
    """It is reported with its number, and its name if that could be read."""
    lines: list[object] = [a_case(f"case-{number}") for number in range(MANY)]
    lines[200] = "{"
    lines[201] = a_case("odd") | {"profile": {"kind": "Nonsense"}}
    answers = list(run_cases(a_file(tmp_path, lines), workers))
    assert len(names(answers)) == MANY - 2
    problems = [problem for each in answers for problem in each.problems]
    assert [(number, name) for number, name, _ in problems] == [(201, ""), (202, "odd")]


def test_one_process_works_line_by_line(tmp_path: Path) -> None:
    """The writer of a pipe can wait for each result."""
    answers = run_cases(a_file(tmp_path, [a_case("first"), a_case("second")]))
    assert names([next(answers)]) == ["first"]
