"""Tests of running many cases."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from bayplan.conformance.run import Answers, run_cases

MANY = 300


def a_file(folder: Path, lines: Sequence[object]) -> str:
    """A file with a JSON document a line; text stands there as it is."""
    file = folder / "cases.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(file)


def a_case(name: str) -> dict[str, object]:
    """A pod that fits on the only node."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    return {"name": name, "nodes": [node], "pod": {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}}


def names(answers: Sequence[Answers]) -> list[str]:
    """The cases that were answered, in order."""
    return [json.loads(line)["name"] for each in answers for line in each.output.splitlines()]


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
def test_answers_come_in_the_order_of_the_lines(tmp_path: Path, workers: int, count: int) -> None:
    """However many processes work on them."""
    wanted = [f"case-{number}" for number in range(count)]
    assert names(list(run_cases(a_file(tmp_path, [a_case(name) for name in wanted]), workers))) == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_line_costs_no_other_its_answer(tmp_path: Path, workers: int) -> None:
    """It is told with its number, and its name where that could be read."""
    lines: list[object] = [a_case(f"case-{number}") for number in range(MANY)]
    lines[200] = "{"
    lines[201] = a_case("odd") | {"profile": {"kind": "Nonsense"}}
    answers = list(run_cases(a_file(tmp_path, lines), workers))
    assert len(names(answers)) == MANY - 2
    problems = [problem for each in answers for problem in each.problems]
    assert [(number, name) for number, name, _ in problems] == [(201, ""), (202, "odd")]


def test_one_process_answers_line_by_line(tmp_path: Path) -> None:
    """Whoever feeds a pipe can wait for each answer."""
    answers = run_cases(a_file(tmp_path, [a_case("first"), a_case("second")]))
    assert names([next(answers)]) == ["first"]
