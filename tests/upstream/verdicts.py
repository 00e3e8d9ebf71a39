"""Run a test binary and read the verdict of each test from its output."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.upstream.builds import TestBinary

_RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_CURRENT = re.compile(r"^=== (?:RUN|CONT|NAME)\s+(\S+)")
_USED = re.compile(r"EXTERNAL used by (\S+)")
_REFUSED = re.compile(r"EXTERNAL not applicable: (.+)$")
_UNSELECTED = "disabled by label filter"
_DONE = re.compile(r"^(PASS|FAIL)$", re.MULTILINE)
_LEAK_CHECK_SECONDS = 2.0
_POLL_SECONDS = 1.0
READY = "bayplan.app: Scheduling: "
"""Text in the log of ``bayplan run`` when all lists have arrived and cycles begin."""
_RESIZES = "InPlacePodVerticalScalingSchedulerPreemption"
_CLAIMS = "DRAWorkloadResourceClaims"
_DEVICES = (
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
)
_SAME_NAMES = (_RESIZES, _CLAIMS, *_DEVICES)
GATES = ",".join(("CompositePodGroup=CompositePodGroups", *(f"{name}={name}" for name in _SAME_NAMES)))
"""Pairs of a gate of kube-scheduler and the gate of ``bayplan run`` for the same feature, separated by commas."""

SKIPPED = "skipped by the test itself"
BY_HAND = "the test starts no scheduler: it calls functions of kube-scheduler"


class Verdict(StrEnum):
    """Verdict on one test."""

    PASS = "PASS"
    FAIL = "FAIL"
    NOT_APPLICABLE = "NOT_APPLICABLE"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict on one test, with the reason.

    Args:
        reason: Why the test is not applicable; "" for tests that the external scheduler ran.
    """

    verdict: Verdict
    reason: str = ""


@dataclass(slots=True)
class Verdicts:
    """Outcomes of one run of a binary.

    Attributes:
        by_test: Outcome of each test without subtests, in the order of the output.
        is_complete: Whether all tests ran: the binary neither crashed nor exceeded its time.
    """

    by_test: dict[str, Outcome] = field(default_factory=dict)
    is_complete: bool = True

    def of(self, verdict: Verdict) -> list[str]:
        """Return the tests with a verdict."""
        return [name for name, outcome in self.by_test.items() if outcome.verdict is verdict]


@dataclass(frozen=True, slots=True)
class BinaryRunner:
    """Runner of test binaries against an external scheduler.

    Args:
        command: Command of the scheduler; the tests append ``--config FILE``.
        ready: Text in the scheduler's output that shows that it is ready; "" to wait for nothing.
        gates: Feature gates that are passed to the scheduler if a test changes them; see ``GATES``.
        seconds: Maximum duration of a run of a binary.
        environment: Additional environment variables of the tests.
    """

    command: str
    ready: str = READY
    gates: str = GATES
    seconds: float = 5400.0
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, binary: TestBinary, log: Path, only: Sequence[str] = (), *, any_gates: bool = False) -> Verdicts:
        """Run a test binary against the scheduler.

        Args:
            binary: The test binary; etcd must be on PATH.
            log: File for the output.
            only: Tests without their subtests, or one test with its subtests; empty for all tests.
            any_gates: Whether tests run although they change gates that the scheduler does not have.
        """
        arguments = [str(binary.path), "-test.v", f"-test.timeout={self.seconds:.0f}s"]
        if only:
            arguments.append(f"-test.run={run_pattern(only)}")
        log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="upstream-") as directory, log.open("wb") as sink:
            external = {"EXTERNAL_SCHEDULER": self.command, "EXTERNAL_READY": self.ready, "EXTERNAL_GATES": self.gates}
            external["EXTERNAL_ANY_GATES"] = "yes" if any_gates else ""
            env = os.environ | external | {"TMPDIR": directory} | dict(self.environment)
            process = subprocess.Popen(
                arguments, cwd=binary.sources, env=env, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                is_complete = _wait(process, log, self.seconds)
            finally:
                _end(process)
        return Verdicts(verdicts_in(log.read_text(encoding="utf-8", errors="replace")), is_complete)


def run_pattern(only: Sequence[str]) -> str:
    """Return the pattern of ``-test.run`` for tests.

    Raises:
        ValueError: Several tests, and one of them is a subtest: the pattern cannot name both.
    """
    if len(only) == 1:
        return "/".join(f"^{re.escape(part)}$" for part in only[0].split("/"))
    if any("/" in name for name in only):
        raise ValueError(f"name one subtest, or tests without subtests: {', '.join(only)}")
    return f"^({'|'.join(re.escape(name) for name in only)})$"


def verdicts_in(text: str) -> dict[str, Outcome]:
    """Read the outcomes from the output of a test binary with ``-test.v``.

    Workloads of scheduler_perf that are benchmarks are left out.
    """
    results = {name: result for result, name in _RESULT.findall(text)}
    refused: dict[str, str] = {}
    started: set[str] = set()
    used = set(_USED.findall(text))
    benchmarks: set[str] = set()
    current = ""
    for line in text.splitlines():
        match = _CURRENT.match(line)
        current = match[1] if match else current
        if refusal := _REFUSED.search(line):
            refused.setdefault(current, refusal[1])
        elif "EXTERNAL started" in line:
            started.add(current.partition("/")[0])
        elif _UNSELECTED in line:
            benchmarks.add(current)
    outcomes = {}
    for name, result in results.items():
        if name in benchmarks or any(other.startswith(f"{name}/") for other in results):
            continue
        if name in refused:
            outcomes[name] = Outcome(Verdict.NOT_APPLICABLE, refused[name])
        elif result == "SKIP":
            outcomes[name] = Outcome(Verdict.NOT_APPLICABLE, SKIPPED)
        elif result == "PASS" and not _is_run(name, started, used):
            outcomes[name] = Outcome(Verdict.NOT_APPLICABLE, BY_HAND)
        else:
            outcomes[name] = Outcome(Verdict(result))
    return outcomes


def _is_run(name: str, started: AbstractSet[str], used: AbstractSet[str]) -> bool:
    """Return whether the external scheduler ran in a test, or, if subtests share a scheduler, in this subtest."""
    first = name.partition("/")[0]
    shared = [each for each in used if each.partition("/")[0] == first]
    if not shared:
        return first in started
    return any(f"{name}/".startswith(f"{each}/") or each.startswith(f"{name}/") for each in shared)


def _wait(process: subprocess.Popen[bytes], log: Path, seconds: float) -> bool:
    """Wait until the tests are over, and return whether they are.

    The check for leaked goroutines after the tests may take minutes and is not awaited.
    """
    waited = 0.0
    while waited < seconds:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
        waited += _POLL_SECONDS
        is_done = _DONE.search(log.read_text(encoding="utf-8", errors="replace")) is not None
        if process.returncode is not None:
            return is_done
        if is_done:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LEAK_CHECK_SECONDS)
            return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the binary and the processes that it has started, such as etcd."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
