"""Timed runs of the oracle and of `python -m tests.parity.conformance` over the same file.

The commands exchange files, so neither waits for the other and their times are comparable.
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
    """Run of a command.

    Attributes:
        results: Number of result lines.
        seconds: Wall time, including the start of the command.
        stderr: Content of standard error.
    """

    results: int
    seconds: float
    stderr: str


class Files:
    """Files of one run in a temporary directory.

    Args:
        name: Prefix of the file names.
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
        """Delete the files."""
        for path in (self.submitted, self.admitted, self.changes, self.expected, self.actual):
            path.unlink(missing_ok=True)


def write_cases(path: Path, cases: Iterable[Mapping[str, Any]]) -> None:
    """Write cases, one a line."""
    with path.open("w", encoding="utf-8") as sink:
        for case in cases:
            sink.write(json.dumps(case, separators=(",", ":")) + "\n")


def admit(oracle: Path, files: Files) -> Timed:
    """Set defaults and validate the submitted cases as the API server does; it rejects some of the bent cases."""
    return _run([str(oracle), "-feature-gates", files.gates, "-admit", "-cases"], files.submitted, files.admitted)


def run_oracle(oracle: Path, files: Files) -> Timed:
    """Run kube-scheduler's framework; cases with a random outcome or an internal error are omitted."""
    return _run([str(oracle), "-feature-gates", files.gates, "-skip-ambiguous"], files.admitted, files.expected)


def run_hints(oracle: Path, files: Files) -> Timed:
    """Run kube-scheduler's event handlers and queueing hints on the changes."""
    return _run([str(oracle), "-feature-gates", files.gates, "-hints"], files.changes, files.expected)


def run_queue(oracle: Path, files: Files) -> Timed:
    """Run the submitted sequences through kube-scheduler's scheduling queue."""
    return _run([str(oracle), "-queue"], files.submitted, files.expected)


def run_bayplan(files: Files) -> Timed:
    """Run the cases through Bayplan."""
    command = [sys.executable, "-m", "tests.parity.conformance", str(files.admitted)]
    return _run(command, None, files.actual)


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of a file."""
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
