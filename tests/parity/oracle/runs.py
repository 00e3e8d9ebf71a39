"""Runs the oracle and `bayplan explain --cases` as a user would, each as one timed command over the same file.

They exchange files, so neither command waits for the other and their times are comparable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.parity.oracle.generation.families import GATES


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
    """The files of one run in a scratch directory.

    Args:
        directory: Where they go.
        name: Names them.
        families: Families of the cases, which have the same feature gates.
    """

    def __init__(self, directory: Path, name: str, families: Sequence[str] = ()) -> None:
        gates = {gate: value for family in families for gate, value in GATES.get(family, {}).items()}
        self.gates = ",".join(f"{gate}={str(value).lower()}" for gate, value in gates.items())
        self.submitted = directory / f"{name}.submitted.jsonl"
        self.admitted = directory / f"{name}.admitted.jsonl"
        self.changes = directory / f"{name}.changes.jsonl"
        self.expected = directory / f"{name}.expected.jsonl"
        self.actual = directory / f"{name}.actual.jsonl"

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
    return _run([str(oracle), "-feature-gates", files.gates, "-admit", "-cases"], files.submitted, files.admitted)


def ask_oracle(oracle: Path, files: Files) -> Timed:
    """Run kube-scheduler's framework; cases with a random outcome or an error of its own are left out."""
    return _run([str(oracle), "-feature-gates", files.gates, "-skip-ambiguous"], files.admitted, files.expected)


def ask_hints(oracle: Path, files: Files) -> Timed:
    """Run kube-scheduler's event handlers and queueing hints on the changes."""
    return _run([str(oracle), "-feature-gates", files.gates, "-hints"], files.changes, files.expected)


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
