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

from scheduler_core.errors import ConfigError
from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.conformance.cases import read_lines
from tests.parity.hint_cases import QUEUE, SKIP, decode_hint_case, hints_of
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
    registry, defaults = in_tree_registry(), default_plugins()
    given = [(json.loads(line), hints_of(decode_hint_case(line), registry, defaults)) for line in lines]
    return tuple(
        Pair(each["case"]["name"], kind_of(each["case"]["change"]), each["expect"]["verdicts"], found)
        for each, found in given
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


def changed(change: dict[str, Any], spec: dict[str, Any], **case: Any) -> dict[str, str]:
    """Return the verdicts on a change around a waiting pod with fields of its spec."""
    line = json.dumps({"pod": pod_json(**spec), "change": change, **case}).encode()
    return hints_of(decode_hint_case(line), in_tree_registry(), default_plugins())


def pod_json(name: str = "p", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}], **spec}}


def test_the_pods_own_change_is_evaluated_with_the_new_pod() -> None:
    """A hint reads the new version of the waiting pod; the change of another waiting pod is ignored."""
    gated: dict[str, Any] = {"schedulingGates": [{"name": "g"}]}
    change = {"kind": "Pod", "old": pod_json(**gated), "new": pod_json()}
    assert changed(change, gated)["SchedulingGates"] == QUEUE
    another = {"kind": "Pod", "old": pod_json("q", **gated), "new": pod_json("q")}
    assert changed(another, gated, pods=[another["old"]]) == {}


def test_a_plugin_without_a_rejecting_point_is_not_called() -> None:
    """A plugin whose rejecting extension points are disabled is not called."""
    off = {"disabled": [{"name": "NodePorts"}]}
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": {"preFilter": off, "filter": off}}],
    }
    change = {"kind": "Node", "new": {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}}}
    assert "NodePorts" in changed(change, {})
    assert "NodePorts" not in changed(change, {}, profile=profile)


@table(
    "fields, problem",
    ("unknown kind", {"change": {"kind": "Secret"}}, "unknown kind Secret; use one of Pod, Node"),
    ("no change", {}, "is not a case of -hints: .*change"),
)
def test_a_line_that_cannot_be_evaluated(fields: dict[str, Any], problem: str) -> None:
    """The error for an unknown kind lists the known ones, and that for another line names what it lacks."""
    line = json.dumps({"pod": {"metadata": {"name": "p"}}, **fields}).encode()
    with pytest.raises(ConfigError, match=problem):
        hints_of(decode_hint_case(line), in_tree_registry(), default_plugins())
