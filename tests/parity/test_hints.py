"""Tests that queueing hints return the same as kube-scheduler's after a change around a waiting pod.

The stored verdicts are those of kube-scheduler's event handlers and hints (``oracle -hints``).
"""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.conformance.cases import read_lines
from tests.parity.hint_cases import QUEUE, SKIP, evaluate_hints
from tests.parity.oracle.generation.families import generate
from tests.parity.oracle.generation.hints import hint_case, kind_of
from tests.parity.oracle.hint_parity import HintTally, hint_differences
from tests.support.tables import table

CASES = Path(__file__).parent / "cases" / "hints.jsonl.gz"
FEWEST_CASES = 300
NEVER_SKIPS = {"NodeName", "SchedulingGates"}
NEVER_QUEUES = {"DefaultPreemption"}


class Pair(NamedTuple):
    """Change, and the verdicts of kube-scheduler's and Bayplan's plugins."""

    name: str
    change: str
    expected: dict[str, str]
    actual: dict[str, str]


@lru_cache
def pairs() -> tuple[Pair, ...]:
    """Run all cases and return both verdicts of each."""
    lines = list(read_lines(str(CASES)))
    results = evaluate_hints(lines, in_tree_registry(), default_plugins())
    given = [json.loads(line) for line in lines]
    return tuple(
        Pair(each["case"]["name"], kind_of(each["case"]["change"]), each["expect"]["verdicts"], found.verdicts)
        for each, found in zip(given, results, strict=True)
    )


CHANGES = [
    f"{kind}/{action}"
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
    for action in ("add", "update", "delete")
]


@pytest.mark.parametrize("change", CHANGES)
def test_hints_equal_kube_scheduler(change: str) -> None:
    """All changes of a kind have the same verdicts, and such changes exist."""
    of_kind = [pair for pair in pairs() if pair.change == change]
    assert of_kind
    differing = {pair.name: hint_differences(pair.expected, pair.actual) for pair in of_kind}
    assert not {name: found for name, found in differing.items() if found}


def test_every_plugin_has_both_verdicts() -> None:
    """The cases have both verdicts of every plugin, except for the plugins listed above."""
    seen = Counter((plugin, verdict) for pair in pairs() for plugin, verdict in pair.expected.items())
    plugins = {plugin for plugin, _ in seen}
    assert len(pairs()) >= FEWEST_CASES
    assert {plugin for plugin in plugins if not seen[plugin, QUEUE]} == NEVER_QUEUES
    assert {plugin for plugin in plugins if not seen[plugin, SKIP]} == NEVER_SKIPS


@table(
    "expected, actual, differing",
    ("equal", {"A": "Queue"}, {"A": "Queue"}, set()),
    ("error-counts-as-queue", {"A": "Error"}, {"A": "Queue"}, set()),
    ("not-called-counts-as-skip", {"A": "Skip"}, {}, set()),
    ("skip-counts-as-not-called", {}, {"A": "Skip"}, set()),
    ("not-requeued", {"A": "Queue"}, {}, {"A"}),
    ("requeued-without-reason", {"A": "Skip", "B": "Skip"}, {"A": "Queue", "B": "Skip"}, {"A"}),
)
def test_differing_plugins_are_returned(expected: dict[str, str], actual: dict[str, str], differing: set[str]) -> None:
    """Only the plugins whose verdicts differ are returned."""
    assert set(hint_differences(expected, actual)) == differing


@table(
    "found, failures, agrees",
    ("agreed", [{"NodeName": "Queue"}], [], True),
    ("differs", [{"NodeName": "Skip"}], [], False),
    ("failed-case", [{"NodeName": "Queue"}], ["d: nothing"], False),
    ("no-cases", [], [], False),
)
def test_missing_results_do_not_agree(found: list[dict[str, str]], failures: list[str], agrees: bool) -> None:
    """A failed case or an empty run does not agree."""
    tally = HintTally(failures=failures)
    for actual in found:
        tally.add({"name": "c", "change": {"kind": "Node", "new": {"a": 1}}}, {"NodeName": "Queue"}, actual)
    assert tally.agrees is agrees


def test_changes_depend_on_the_seed() -> None:
    """A seed generates the same changes again, another seed others, and the case is not modified."""
    case: dict[str, Any] = generate("volumes", 5, 3)
    before = json.dumps(case)
    first, again, other = (json.dumps(hint_case(case, seed, 1)) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert json.dumps(case) == before
