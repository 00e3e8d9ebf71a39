"""Results are read from a file as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.harness import ResultLines, UnreadableResultsError


@dataclass(frozen=True)
class Result:
    name: str
    problems: tuple[str, ...] = ()
    added_later: int = 0


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A run can be continued from its file; missing folders are created."""
    lines = ResultLines(tmp_path / "folder" / "runs.jsonl", Result)
    assert lines.read() == []
    written = [Result("a"), Result("b", ("node a is full",))]
    for each in written:
        lines.add(each)
    assert lines.read() == written


def test_an_incomplete_line_is_ignored(tmp_path: Path) -> None:
    """A killed run may leave an incomplete line; the next result replaces it."""
    file = tmp_path / "runs.jsonl"
    file.write_text('{"name":"a"}\n{"name":"b')
    lines = ResultLines(file, Result)
    assert lines.read() == [Result("a")]
    lines.add(Result("c"))
    assert lines.read() == [Result("a"), Result("c")]


def test_another_file_is_rejected(tmp_path: Path) -> None:
    """The error has the line and the remedy."""
    file = tmp_path / "runs.jsonl"
    file.write_text('{"name":"a"}\n{"named":"b"}\n')
    with pytest.raises(UnreadableResultsError, match=r"line 2: .*name another one for results"):
        ResultLines(file, Result).read()
