"""Comparison of kube-scheduler's and Bayplan's scheduling queues on random sequences of calls.

The comparison covers the content of the queue after every step, and at the end the incoming pods by event and queue
and the plugins that rejected waiting pods. :mod:`tests.parity.queue_sequences` normalizes the results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.parity.oracle.generation.queue_sequences import queue_sequence
from tests.parity.oracle.runs import Files, read_results, run_queue, write_cases
from tests.parity.queue_sequences import replay_sequences

_PRINTED = 5
_PRINTED_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """First difference of two queues.

    Attributes:
        name: Name of the sequence.
        step: Number of the step, and the step; None for the counts of the whole sequence.
        expected: Differing content of the reference's queue.
        actual: Differing content of Bayplan's queue.
    """

    name: str
    step: tuple[int, Mapping[str, Any]] | None
    expected: Mapping[str, Any]
    actual: Mapping[str, Any]


@dataclass(slots=True)
class QueueTally:
    """Agreement of queues.

    Attributes:
        sequences: Number of compared sequences.
        mix: Number of incoming pods by event and queue, in the reference.
        found: First difference of each sequence that has one.
        failures: Errors of the runs.
    """

    sequences: int = 0
    steps: int = 0
    mix: Counter[str] = field(default_factory=Counter)
    found: list[QueueDifference] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, sequence: Mapping[str, Any], expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
        """Count a sequence."""
        self.sequences += 1
        self.steps += len(sequence["steps"])
        self.mix.update(expected["incoming"])
        difference = first_difference(sequence, expected, actual)
        if difference is not None:
            self.found.append(difference)

    @property
    def agrees(self) -> bool:
        """Return whether all sequences have results and agree."""
        return bool(self.sequences) and not self.found and not self.failures


def first_difference(
    sequence: Mapping[str, Any], expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> QueueDifference | None:
    """Compare the dumps of two queues for one sequence.

    Args:
        expected: The reference's result.
        actual: Bayplan's result.

    Returns:
        The difference after the first step that has one, or None.
    """
    for number, step in enumerate(sequence["steps"]):
        wanted, found = expected["dumps"][number], actual["dumps"][number]
        if wanted != found:
            return QueueDifference(sequence["name"], (number, step), *_differing(wanted, found))
    wanted, found = _counts(expected), _counts(actual)
    if wanted != found:
        return QueueDifference(sequence["name"], None, *_differing(wanted, found))
    return None


def _counts(result: Mapping[str, Any]) -> dict[str, int]:
    return {**result["incoming"], **result.get("unschedulableBy", {})}


def _differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    keys = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
    return {key: wanted.get(key) for key in keys}, {key: found.get(key) for key in keys}


def compare_queues(oracle: Path, directory: Path, seed: int, count: int) -> QueueTally:
    """Run sequences through both queues and compare the results.

    Args:
        oracle: The binary.
        directory: Directory of the files, which stay if a result differs.
    """
    files = Files(directory, "queue")
    write_cases(files.submitted, (queue_sequence(seed, index) for index in range(count)))
    tally = QueueTally()
    stderr = run_queue(oracle, files).stderr
    if stderr:
        tally.failures.append(stderr)
        return tally
    with files.submitted.open("rb") as lines:
        results = zip(read_results(files.submitted), read_results(files.expected), replay_sequences(lines), strict=True)
        for sequence, expected, actual in results:
            tally.add(sequence, expected, actual)
    if tally.agrees:
        files.drop()
    return tally


def print_queues(tally: QueueTally, directory: Path) -> None:
    """Print the incoming pods, the agreement and the first differences."""
    print("incoming pods by event and queue:")
    for what, times in sorted(tally.mix.items()):
        print(f"  {what:60}{times:8}")
    print(f"{tally.sequences - len(tally.found)} of {tally.sequences} sequences agree, {tally.steps} steps", flush=True)
    for difference in tally.found[:_PRINTED]:
        step = "at the end" if difference.step is None else f"step {difference.step[0]}: {dict(difference.step[1])}"
        print(f"\n{difference.name}, {step}")
        print(f"  kube-scheduler | {str(difference.expected)[:_PRINTED_CHARACTERS]}")
        print(f"  bayplan        | {str(difference.actual)[:_PRINTED_CHARACTERS]}")
    for problem in tally.failures[:_PRINTED]:
        print(f"  failed: {problem[:_PRINTED_CHARACTERS]}")
    if not tally.agrees:
        print(f"  the files are in {directory}", flush=True)
