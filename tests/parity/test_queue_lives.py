"""The scheduling queue behaves as kube-scheduler's: the same events give the same content after every step.

The dumps are kube-scheduler v1.36.3's own (``oracle -queue``): its queue, with fake plugins whose gates and hints
``tests.parity.queue_rules`` repeats.
"""

from __future__ import annotations

import copy
import json
import logging
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bayplan.conformance.cases import read_lines

from scheduler_core.errors import ConfigError
from tests.parity.oracle.generation.queue_lives import queue_life
from tests.parity.oracle.queue_parity import QueueTally, first_difference
from tests.parity.queue_lives import replay, replay_lives
from tests.parity.queue_rules import decode_life

CASES = Path(__file__).parent / "cases" / "queue.jsonl.gz"
FEWEST_LIVES = 100

Json = dict[str, Any]


class Pair(NamedTuple):
    """A life, what kube-scheduler's queue held in it and what Bayplan's did."""

    life: Json
    expected: Json
    actual: Json


@lru_cache
def pairs() -> tuple[Pair, ...]:
    """Live all lives."""
    given = [json.loads(line) for line in read_lines(str(CASES))]
    # Plugins of these lives fail on purpose, and the queue says so each time.
    logging.disable(logging.ERROR)
    try:
        answers = list(replay_lives(json.dumps(each["case"]).encode() for each in given))
    finally:
        logging.disable(logging.NOTSET)
    return tuple(Pair(each["case"], each["expect"], found) for each, found in zip(given, answers, strict=True))


@pytest.mark.parametrize("tens", range(FEWEST_LIVES // 10))
def test_holds_what_kube_schedulers_queue_holds(tens: int) -> None:
    """After every step, with all counts, and what came to which queue by which event."""
    found = [first_difference(*pair) for pair in pairs()[tens * 10 : tens * 10 + 10]]
    assert found == [None] * 10


def test_the_lives_are_eventful() -> None:
    """Lives in which little happens would prove little: every place is come to in every way."""
    incoming: Counter[str] = Counter()
    for pair in pairs():
        incoming.update(pair.expected["incoming"])
    assert len(pairs()) >= FEWEST_LIVES
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


LIFE: Json = {"name": "l", "steps": [{"op": "pop"}, {"op": "pop"}]}
RESULT: Json = {
    "dumps": [{"active": ["a"]}, {"popped": "a", "pods": {"a": {"attempts": 1}}}],
    "incoming": {"UnscheduledPodAdd active": 1},
}


def changed(path: tuple[str | int, ...], value: object) -> Json:
    """A result in which something is different."""
    result = copy.deepcopy(RESULT)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


@pytest.mark.parametrize(
    ("actual", "step", "keys"),
    [
        pytest.param(changed(("dumps", 0, "active"), ["b"]), 0, {"active"}, id="another-pod"),
        pytest.param(changed(("dumps", 0, "gated"), {"a": "G"}), 0, {"gated"}, id="one-too-many"),
        pytest.param(changed(("dumps", 1, "pods", "a", "attempts"), 2), 1, {"pods"}, id="a-count"),
        pytest.param(changed(("incoming", "NodeAdd active"), 1), None, {"NodeAdd active"}, id="an-incoming-pod"),
    ],
)
def test_names_the_first_step_that_differs(actual: Json, step: int | None, keys: set[str]) -> None:
    """With what differs after it, and nothing else."""
    found = first_difference(LIFE, RESULT, actual)
    assert found is not None
    assert (found.step and found.step[0]) == step
    assert set(found.expected) == set(found.actual) == keys


@pytest.mark.parametrize(
    ("actual", "unanswered", "is_whole"),
    [
        pytest.param([RESULT], [], True, id="agreed"),
        pytest.param([changed(("dumps", 0, "active"), [])], [], False, id="differs"),
        pytest.param([RESULT], ["oracle: panic"], False, id="not-answered"),
        pytest.param([], [], False, id="no-lives"),
    ],
)
def test_agreement_is_of_all_lives(actual: list[Json], unanswered: list[str], is_whole: bool) -> None:
    """What is not answered does not agree, nor does nothing at all."""
    tally = QueueTally(unanswered=unanswered)
    for each in actual:
        tally.add(LIFE, RESULT, each)
    assert tally.is_whole is is_whole


def test_lives_repeat() -> None:
    """A seed names its lives, and another one names others."""
    first, again, other = (json.dumps(queue_life(seed, 3)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"{", id="no-json"),
        pytest.param(b'{"name": "l"}', id="no-life"),
    ],
)
def test_refuses_what_is_no_life(line: bytes) -> None:
    """With what to read about it."""
    with pytest.raises(ConfigError, match=r"tests/parity/oracle/README\.md"):
        decode_life(line)


def test_refuses_a_step_that_it_does_not_know() -> None:
    """And names those that it does."""
    life = queue_life(1, 1) | {"steps": [{"op": "dance"}]}
    with pytest.raises(ConfigError, match="unknown op dance; use one of add, "):
        replay(decode_life(json.dumps(life).encode()))
