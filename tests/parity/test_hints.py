"""Plugins are asked, and answer, as kube-scheduler's are when something changes around a waiting pod.

The answers are kube-scheduler's own (``oracle -hints``): its event handlers, its plugins' hints.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bayplan.conformance.cases import read_lines

from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.hint_cases import QUEUE, SKIP, evaluate_hints
from tests.parity.oracle.generation.families import generate
from tests.parity.oracle.generation.hints import hint_case, kind_of
from tests.parity.oracle.hint_parity import HintTally, hint_differences

CASES = Path(__file__).parent / "cases" / "hints.jsonl.gz"
FEWEST_CASES = 300

NEVER_SKIPS = {"NodeName", "SchedulingGates"}
NEVER_QUEUES = {"DefaultPreemption"}


class Pair(NamedTuple):
    """A change, and the results of kube-scheduler's and Bayplan's plugins for it."""

    name: str
    change: str
    expected: dict[str, str]
    actual: dict[str, str]


@lru_cache
def pairs() -> tuple[Pair, ...]:
    """Run all cases."""
    lines = list(read_lines(str(CASES)))
    answers = evaluate_hints(lines, in_tree_registry(), default_plugins())
    given = [json.loads(line) for line in lines]
    return tuple(
        Pair(each["case"]["name"], kind_of(each["case"]["change"]), each["expect"]["verdicts"], found.verdicts)
        for each, found in zip(given, answers, strict=True)
    )


CHANGES = [
    f"{kind}/{happened}"
    for kind in (
        "Pod",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "CSIStorageCapacity",
        "VolumeAttachment",
        "ResourceClaim",
        "ResourceSlice",
        "DeviceClass",
    )
    for happened in ("add", "update", "delete")
]


@pytest.mark.parametrize("change", CHANGES)
def test_wakes_whom_kube_scheduler_wakes(change: str) -> None:
    """Every plugin returns the same for every change of a kind, and there are such changes."""
    of_kind = [pair for pair in pairs() if pair.change == change]
    assert of_kind
    wrong = {pair.name: hint_differences(pair.expected, pair.actual) for pair in of_kind}
    assert not {name: found for name, found in wrong.items() if found}


def test_both_answers_occur_of_every_plugin() -> None:
    """Cases with only one result would prove little."""
    seen = Counter((plugin, verdict) for pair in pairs() for plugin, verdict in pair.expected.items())
    plugins = {plugin for plugin, _ in seen}
    assert len(pairs()) >= FEWEST_CASES
    assert {plugin for plugin in plugins if not seen[plugin, QUEUE]} == NEVER_QUEUES
    assert {plugin for plugin in plugins if not seen[plugin, SKIP]} == NEVER_SKIPS


@pytest.mark.parametrize(
    ("expected", "actual", "wrong"),
    [
        pytest.param({"A": "Queue"}, {"A": "Queue"}, set(), id="equal"),
        pytest.param({"A": "Error"}, {"A": "Queue"}, set(), id="an-error-wakes"),
        pytest.param({"A": "Skip"}, {}, set(), id="not-asked-is-as-good-as-skip"),
        pytest.param({}, {"A": "Skip"}, set(), id="and-the-other-way-round"),
        pytest.param({"A": "Queue"}, {}, {"A"}, id="a-pod-sleeps-on"),
        pytest.param({"A": "Skip", "B": "Skip"}, {"A": "Queue", "B": "Skip"}, {"A"}, id="a-pod-is-woken-for-nothing"),
    ],
)
def test_names_the_plugins_that_differ(expected: dict[str, str], actual: dict[str, str], wrong: set[str]) -> None:
    """And no others."""
    assert set(hint_differences(expected, actual)) == wrong


@pytest.mark.parametrize(
    ("found", "unanswered", "is_whole"),
    [
        pytest.param([{"NodeName": "Queue"}], [], True, id="agreed"),
        pytest.param([{"NodeName": "Skip"}], [], False, id="differs"),
        pytest.param([{"NodeName": "Queue"}], ["d: nothing"], False, id="not-answered"),
        pytest.param([], [], False, id="no-cases"),
    ],
)
def test_agreement_is_of_all_cases(found: list[dict[str, str]], unanswered: list[str], is_whole: bool) -> None:
    """A missing result does not agree, nor does an empty run."""
    tally = HintTally(unanswered=unanswered)
    for actual in found:
        tally.add({"name": "c", "change": {"kind": "Node", "new": {"a": 1}}}, {"NodeName": "Queue"}, actual)
    assert tally.is_whole is is_whole


def test_changes_repeat() -> None:
    """A seed names its changes, another one names others, and the case itself is left alone."""
    case: dict[str, Any] = generate("volumes", 5, 3)
    before = json.dumps(case)
    first, again, other = (json.dumps(hint_case(case, seed, 1)) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert json.dumps(case) == before
