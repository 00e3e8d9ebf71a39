"""Results are read from a file as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.result_lines import ResultLines, UnreadableResultsError


@dataclass(frozen=True)
class Result:
    name: str
    wrong: tuple[str, ...] = ()
    added_later: int = 0


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    """So that a run can be taken up again; folders are made."""
    lines = ResultLines(tmp_path / "folder" / "runs.jsonl", Result)
    assert lines.read() == []
    written = [Result("a"), Result("b", ("node a is full",))]
    for each in written:
        lines.add(each)
    assert lines.read() == written


def test_half_a_line_is_no_result(tmp_path: Path) -> None:
    """A run that was killed may leave one; the next result takes its place."""
    file = tmp_path / "runs.jsonl"
    file.write_text('{"name":"a"}\n{"name":"b')
    lines = ResultLines(file, Result)
    assert lines.read() == [Result("a")]
    lines.add(Result("c"))
    assert lines.read() == [Result("a"), Result("c")]


def test_another_file_is_refused(tmp_path: Path) -> None:
    """With the line, and what to do."""
    file = tmp_path / "runs.jsonl"
    file.write_text('{"name":"a"}\n{"named":"b"}\n')
    with pytest.raises(UnreadableResultsError, match=r"line 2: .*name another one for results"):
        ResultLines(file, Result).read()
