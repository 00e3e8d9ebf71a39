"""Tests that the scheduling queue has the same content as kube-scheduler's after every step.

The stored dumps are those of kube-scheduler v1.36.3's queue (``oracle -queue``) with the fake plugins of
``tests.parity.queue_rules``.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scheduler_core.errors import ConfigError
from tests.parity.conformance.cases import read_lines
from tests.parity.oracle.generation.queue_sequences import queue_sequence
from tests.parity.oracle.queue_parity import QueueTally, first_difference
from tests.parity.queue_rules import decode_sequence
from tests.parity.queue_sequences import replay, replay_sequences
from tests.support.presence import present
from tests.support.tables import table

CASES = Path(__file__).parent / "cases" / "queue.jsonl.gz"
FEWEST_SEQUENCES = 100
Json = dict[str, Any]


class Pair(NamedTuple):
    """Sequence, and the content of kube-scheduler's and Bayplan's queues."""

    sequence: Json
    expected: Json
    actual: Json


@lru_cache
def pairs() -> tuple[Pair, ...]:
    """Replay all sequences and return both results of each."""
    given = [json.loads(line) for line in read_lines(str(CASES))]
    results = replay_sequences(json.dumps(each["case"]).encode() for each in given)
    return tuple(Pair(each["case"], each["expect"], found) for each, found in zip(given, results, strict=True))


@pytest.mark.parametrize("tens", range(FEWEST_SEQUENCES // 10))
def test_queue_content_equals_kube_scheduler(tens: int) -> None:
    """The content after every step and the counts of incoming pods are equal."""
    found = [first_difference(*pair) for pair in pairs()[tens * 10 : tens * 10 + 10]]
    assert found == [None] * 10


def test_sequences_cover_the_queue() -> None:
    """The sequences cover every part of the queue and every way into it."""
    incoming: Counter[str] = Counter()
    for pair in pairs():
        incoming.update(pair.expected["incoming"])
    assert len(pairs()) >= FEWEST_SEQUENCES
    for way in (
        "UnscheduledPodAdd unschedulable",
        "ScheduleAttemptFailure active",
        "ScheduleAttemptFailure backoff",
        "ScheduleAttemptFailure unschedulable",
        "BackoffComplete active",
        "PopFromBackoffQ active",
        "ForceActivate active",
        "UnschedulableTimeout active",
        "NodeAdd active",
        "NodeAdd backoff",
    ):
        assert incoming[way] > 0, way
    dumped = {key for pair in pairs() for dump in pair.expected["dumps"] for key in dump}
    assert dumped == {
        "popped",
        "active",
        "backoff",
        "errorBackoff",
        "unschedulable",
        "gated",
        "inFlight",
        "events",
        "nominated",
        "pods",
    }


SEQUENCE: Json = {"name": "l", "steps": [{"op": "pop"}, {"op": "pop"}]}
RESULT: Json = {
    "dumps": [{"active": ["a"]}, {"popped": "a", "pods": {"a": {"attempts": 1}}}],
    "incoming": {"UnscheduledPodAdd active": 1},
}


def changed(path: tuple[str | int, ...], value: object) -> Json:
    """Return a result with one different value."""
    result = copy.deepcopy(RESULT)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


@table(
    "actual, step, keys",
    ("another-pod", changed(("dumps", 0, "active"), ["b"]), 0, {"active"}),
    ("additional-pod", changed(("dumps", 0, "gated"), {"a": "G"}), 0, {"gated"}),
    ("count", changed(("dumps", 1, "pods", "a", "attempts"), 2), 1, {"pods"}),
    ("incoming-pod", changed(("incoming", "NodeAdd active"), 1), None, {"NodeAdd active"}),
)
def test_the_first_differing_step_is_returned(actual: Json, step: int | None, keys: set[str]) -> None:
    """The first differing step is returned with only the differing content."""
    found = present(first_difference(SEQUENCE, RESULT, actual))
    assert (found.step and found.step[0]) == step
    assert set(found.expected) == set(found.actual) == keys


@table(
    "actual, failures, agrees",
    ("agreed", [RESULT], [], True),
    ("differs", [changed(("dumps", 0, "active"), [])], [], False),
    ("failed-sequence", [RESULT], ["oracle: panic"], False),
    ("no-sequences", [], [], False),
)
def test_missing_results_do_not_agree(actual: list[Json], failures: list[str], agrees: bool) -> None:
    """A failed sequence or an empty run does not agree."""
    tally = QueueTally(failures=failures)
    for each in actual:
        tally.add(SEQUENCE, RESULT, each)
    assert tally.agrees is agrees


def test_sequences_depend_on_the_seed() -> None:
    """A seed generates the same sequences again, and another seed others."""
    first, again, other = (json.dumps(queue_sequence(seed, 3)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


@table("line", ("not-json", b"{"), ("not-a-sequence", b'{"name": "l"}'))
def test_an_invalid_sequence_is_an_error(line: bytes) -> None:
    """The error for an invalid sequence refers to the documentation."""
    with pytest.raises(ConfigError, match=r"tests/parity/oracle/README\.md"):
        decode_sequence(line)


def test_an_unknown_step_is_an_error() -> None:
    """The error for an unknown step lists the known steps."""
    sequence = queue_sequence(1, 1) | {"steps": [{"op": "dance"}]}
    with pytest.raises(ConfigError, match="unknown op dance; use one of add, "):
        replay(decode_sequence(json.dumps(sequence).encode()))
