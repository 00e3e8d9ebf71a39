"""Compares scheduling queues: random lives through kube-scheduler's queue and through Bayplan's.

It compares the whole content of the queue after every step, and at the end how many pods entered which sub-queue by
which event, and which plugins rejected the waiting pods. :mod:`tests.parity.queue_lives` normalises results;
nothing is normalised here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.parity.oracle.generation.queue_lives import queue_life
from tests.parity.oracle.runs import Files, ask_queue, read_results, write_cases
from tests.parity.queue_lives import replay_lives

_SHOWN = 5
_SHOWN_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class QueueDifference:
    """The first thing in which two queues differ.

    Attributes:
        name: The life's.
        step: The number of the step, and the step; None for what is counted over the whole life.
        expected: What the reference's queue holds, where it differs.
        actual: What the other one holds there.
    """

    name: str
    step: tuple[int, Mapping[str, Any]] | None
    expected: Mapping[str, Any]
    actual: Mapping[str, Any]


@dataclass(slots=True)
class QueueTally:
    """Agreement of queues.

    Attributes:
        lives: Lives compared.
        steps: Steps in them.
        mix: How many pods came to which place by which event, in the reference's queues.
        found: The first difference of each life that has one.
        unanswered: What went wrong.
    """

    lives: int = 0
    steps: int = 0
    mix: Counter[str] = field(default_factory=Counter)
    found: list[QueueDifference] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def add(self, life: Mapping[str, Any], expected: Mapping[str, Any], actual: Mapping[str, Any]) -> None:
        """Count a life."""
        self.lives += 1
        self.steps += len(life["steps"])
        self.mix.update(expected["incoming"])
        difference = first_difference(life, expected, actual)
        if difference is not None:
            self.found.append(difference)

    @property
    def is_whole(self) -> bool:
        """Whether everything was answered and agrees."""
        return bool(self.lives) and not self.found and not self.unanswered


def first_difference(
    life: Mapping[str, Any], expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> QueueDifference | None:
    """Compare two queues' dumps of one life.

    Args:
        life: The calls of both.
        expected: The reference's result.
        actual: The other's.

    Returns:
        What differs after the first step after which anything does; None if nothing ever does.
    """
    for number, step in enumerate(life["steps"]):
        wanted, found = expected["dumps"][number], actual["dumps"][number]
        if wanted != found:
            return QueueDifference(life["name"], (number, step), *_differing(wanted, found))
    wanted, found = _counts(expected), _counts(actual)
    if wanted != found:
        return QueueDifference(life["name"], None, *_differing(wanted, found))
    return None


def _counts(result: Mapping[str, Any]) -> dict[str, int]:
    return {**result["incoming"], **result.get("unschedulableBy", {})}


def _differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    keys = [key for key in {**wanted, **found} if wanted.get(key) != found.get(key)]
    return {key: wanted.get(key) for key in keys}, {key: found.get(key) for key in keys}


def compare_queues(oracle: Path, directory: Path, seed: int, count: int) -> QueueTally:
    """Run ``count`` lives through both queues and compare.

    Args:
        oracle: The binary.
        directory: Where the files go; they stay if anything differs.
        seed: Any number.
        count: Lives.
    """
    files = Files(directory, "queue")
    write_cases(files.submitted, (queue_life(seed, index) for index in range(count)))
    tally = QueueTally()
    complaints = ask_queue(oracle, files).complaints
    if complaints:
        tally.unanswered.append(complaints)
        return tally
    # Plugins of these lives fail on purpose, and the queue says so each time.
    logging.disable(logging.ERROR)
    try:
        with files.submitted.open("rb") as lines:
            answers = zip(read_results(files.submitted), read_results(files.expected), replay_lives(lines), strict=True)
            for life, expected, actual in answers:
                tally.add(life, expected, actual)
    finally:
        logging.disable(logging.NOTSET)
    if tally.is_whole:
        files.drop()
    return tally


def print_queues(tally: QueueTally, directory: Path) -> None:
    """Print what happened how often, the agreement and the first differences."""
    print("pods that came, by event and queue:")
    for what, times in sorted(tally.mix.items()):
        print(f"  {what:60}{times:8}")
    print(f"{tally.lives - len(tally.found)} of {tally.lives} lives agree, {tally.steps} steps", flush=True)
    for difference in tally.found[:_SHOWN]:
        step = "at the end" if difference.step is None else f"step {difference.step[0]}: {dict(difference.step[1])}"
        print(f"\n{difference.name}, {step}")
        print(f"  kube-scheduler | {str(difference.expected)[:_SHOWN_CHARACTERS]}")
        print(f"  bayplan        | {str(difference.actual)[:_SHOWN_CHARACTERS]}")
    for problem in tally.unanswered[:_SHOWN]:
        print(f"  not answered: {problem[:_SHOWN_CHARACTERS]}")
    if not tally.is_whole:
        print(f"  the files are in {directory}", flush=True)
