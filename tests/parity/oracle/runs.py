"""Runs the oracle and `bayplan explain --cases` as a user would, each as one timed command over the same file.

They exchange files, so neither command waits for the other and their times are comparable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Timed:
    """A command's run.

    Attributes:
        results: How many result lines it wrote.
        seconds: Wall time, the command's start included.
        complaints: What it wrote on standard error.
    """

    results: int
    seconds: float
    complaints: str


class Files:
    """The files of one family in a scratch directory.

    Args:
        directory: Where they go.
        family: Names them.
    """

    def __init__(self, directory: Path, family: str) -> None:
        self.submitted = directory / f"{family}.submitted.jsonl"
        self.admitted = directory / f"{family}.admitted.jsonl"
        self.changes = directory / f"{family}.changes.jsonl"
        self.expected = directory / f"{family}.expected.jsonl"
        self.actual = directory / f"{family}.actual.jsonl"

    def drop(self) -> None:
        """Remove them."""
        for path in (self.submitted, self.admitted, self.changes, self.expected, self.actual):
            path.unlink(missing_ok=True)


def write_cases(path: Path, cases: Iterable[Mapping[str, Any]]) -> None:
    """Write cases, one a line."""
    with path.open("w", encoding="utf-8") as sink:
        for case in cases:
            sink.write(json.dumps(case, separators=(",", ":")) + "\n")


def admit(oracle: Path, files: Files) -> Timed:
    """Default and validate the submitted cases as the API server does; it rejects some of the bent ones."""
    return _run([str(oracle), "-admit", "-cases"], files.submitted, files.admitted)


def ask_oracle(oracle: Path, files: Files) -> Timed:
    """Run kube-scheduler's framework; cases with a random outcome or an error of its own are left out."""
    return _run([str(oracle), "-skip-ambiguous"], files.admitted, files.expected)


def ask_hints(oracle: Path, files: Files) -> Timed:
    """Run kube-scheduler's event handlers and queueing hints on the changes."""
    return _run([str(oracle), "-hints"], files.changes, files.expected)


def ask_queue(oracle: Path, files: Files) -> Timed:
    """Run the submitted lives through kube-scheduler's scheduling queue."""
    return _run([str(oracle), "-queue"], files.submitted, files.expected)


def ask_bayplan(files: Files) -> Timed:
    """Run the cases through Bayplan."""
    command = [str(Path(sys.executable).parent / "bayplan"), "explain", "--cases", str(files.admitted)]
    return _run(command, None, files.actual)


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Read result lines."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _run(command: list[str], given: Path | None, sink: Path) -> Timed:
    started = time.monotonic()
    with sink.open("wb") as output:
        source = given.open("rb") if given else None
        try:
            process = subprocess.run(
                command, stdin=source, stdout=output, stderr=subprocess.PIPE, text=True, check=False
            )
        finally:
            if source:
                source.close()
    seconds = time.monotonic() - started
    with sink.open("rb") as lines:
        results = sum(1 for _ in lines)
    return Timed(results, seconds, process.stderr)
