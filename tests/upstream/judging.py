"""Runs a test binary and reads the verdict of each test from its output."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_CURRENT = re.compile(r"^=== (?:RUN|CONT|NAME)\s+(\S+)")
_DONE = re.compile(r"^(PASS|FAIL)$", re.MULTILINE)
_LEAK_CHECK_SECONDS = 2.0
_POLL_SECONDS = 1.0
READY = "bayplan.app: Scheduling: "
"""Text in the log of ``bayplan run`` when all lists have arrived and cycles begin."""


class Verdict(StrEnum):
    """What came of one test."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_APPLICABLE = "NOT_APPLICABLE"


@dataclass(slots=True)
class Verdicts:
    """What came of one run of a binary.

    Attributes:
        by_test: Verdict of each test without subtests, in the order of the output. Tests that never start the external
            scheduler are left out.
        is_complete: Whether the binary ended by itself.
    """

    by_test: dict[str, Verdict] = field(default_factory=dict)
    is_complete: bool = True

    def of(self, verdict: Verdict) -> list[str]:
        """Return the tests with a verdict."""
        return [name for name, each in self.by_test.items() if each is verdict]


def judge(
    binary: Path, command: str, log: Path, *, only: str = "", ready: str = READY, seconds: float = 2400.0
) -> Verdicts:
    """Run a test binary against a scheduler.

    Args:
        binary: The test binary; etcd must be on PATH.
        command: Command of the scheduler; the tests append ``--config FILE``.
        log: Takes the output.
        only: One test; "" for all tests.
        ready: Text in the scheduler's output by which it is ready; "" to wait for nothing.
        seconds: Maximum duration of the run.
    """
    arguments = [str(binary), "-test.v", f"-test.timeout={seconds:.0f}s"]
    if only:
        arguments.append(f"-test.run={'/'.join(f'^{re.escape(part)}$' for part in only.split('/'))}")
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="upstream-") as directory, log.open("wb") as sink:
        env = os.environ | {"EXTERNAL_SCHEDULER": command, "EXTERNAL_READY": ready, "TMPDIR": directory}
        process = subprocess.Popen(
            arguments, cwd=directory, env=env, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            is_complete = _wait(process, log, seconds)
        finally:
            _end(process)
    return Verdicts(verdicts_in(log.read_text(encoding="utf-8", errors="replace")), is_complete)


def verdicts_in(text: str) -> dict[str, Verdict]:
    """Read the verdicts from the output of a test binary with ``-test.v``."""
    results = {name: result for result, name in _RESULT.findall(text)}
    refused: set[str] = set()
    started: set[str] = set()
    current = ""
    for line in text.splitlines():
        match = _CURRENT.match(line)
        current = match[1] if match else current
        if "EXTERNAL not applicable" in line:
            refused.add(current)
        elif "EXTERNAL started" in line:
            started.add(current.partition("/")[0])
    verdicts = {}
    for name, result in results.items():
        if any(other.startswith(f"{name}/") for other in results):
            continue
        if name in refused or result == "SKIP":
            verdicts[name] = Verdict.NOT_APPLICABLE
        elif name.partition("/")[0] in started:
            verdicts[name] = Verdict(result)
    return verdicts


def _wait(process: subprocess.Popen[bytes], log: Path, seconds: float) -> bool:
    """Wait until the tests are over; the check for leaked goroutines after them may take minutes and is not awaited."""
    waited = 0.0
    while waited < seconds:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
        if process.returncode is not None:
            return True
        waited += _POLL_SECONDS
        if _DONE.search(log.read_text(encoding="utf-8", errors="replace")):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAK_CHECK_SECONDS)
            return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the binary and what it has started, etcd among it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
