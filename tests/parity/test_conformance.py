"""Bayplan decides as kube-scheduler does, on cases that kube-scheduler v1.36.3 itself has answered.

Each case goes the way of ``bayplan explain --cases``. Cases in which a plugin speaks that is not built here are left
out, so that they count from the day on which it is.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bayplan.conformance.attempt import attempt_case
from bayplan.conformance.cases import IN_TREE_NAMES, decode_case, read_lines
from bayplan.conformance.results import result_line

from scheduler_core.in_tree import default_plugins, in_tree_registry

CASES = Path(__file__).parent / "cases"
CASES_PER_FAMILY = 60
NEEDS_NODE_DECLARED_FEATURES = 2
"""Cases of the family ``ports`` in which that plugin rejects nodes."""

Result = dict[str, Any]


class Pair(NamedTuple):
    """What kube-scheduler answered and what Bayplan answers."""

    expected: Result
    actual: Result


@lru_cache
def pairs(family: str) -> tuple[Pair, ...]:
    """Run a family."""
    registry, defaults = in_tree_registry(), default_plugins()
    not_built = IN_TREE_NAMES - set(registry)
    found = []
    for line in read_lines(str(CASES / f"{family}.jsonl.gz")):
        expected = json.loads(line)["expect"]
        if speakers(expected) & not_built:
            continue
        case = decode_case(line)
        outcome = attempt_case(case, registry, defaults)
        found.append(Pair(expected, json.loads(result_line(case.name, outcome.examination))))
    return tuple(found)


def speakers(expected: Result) -> set[str]:
    """Plugins that reject something in a case or give a node any points."""
    verdicts = [verdict for verdict in (expected["gated"], expected["prefilter"]) if verdict]
    verdicts += expected["filter"].values()
    names = {str(verdict["plugin"]) for verdict in verdicts}
    for plugin, scores in expected["scores"].items():
        if any(score["weighted"] for score in scores.values()):
            names.add(plugin)
    return names


def gated(result: Result) -> object:
    return (result["gated"] or {}).get("plugin")


def prefilter(result: Result) -> object:
    return result["prefilter"], result["prefilterNodes"]


def filtered(result: Result) -> object:
    return sorted(result["feasible"]), sorted(result["filter"]), result["nominatedOnly"]


def reasons(result: Result) -> object:
    return {
        node: (verdict["code"], verdict["plugin"], sorted(verdict["reasons"]))
        for node, verdict in result["filter"].items()
    }


def scores(result: Result) -> object:
    """Raw and weighted scores; a plugin that gives nothing is as good as absent."""
    return {
        plugin: by_node
        for plugin, by_node in result["scores"].items()
        if any(score["weighted"] for score in by_node.values())
    }


def totals(result: Result) -> object:
    return result["totals"]


def best(result: Result) -> object:
    return result["best"]


@pytest.mark.parametrize(
    "aspect",
    [
        pytest.param(gated, id="gated"),
        pytest.param(prefilter, id="prefilter"),
        pytest.param(filtered, id="filter"),
        pytest.param(reasons, id="reasons"),
        pytest.param(scores, id="scores"),
        pytest.param(totals, id="totals"),
        pytest.param(best, id="best"),
    ],
)
@pytest.mark.parametrize("family", ["taints", "nodeaffinity", "resources", "scoring", "images", "ports", "gates"])
def test_decides_as_kube_scheduler(family: str, aspect: Callable[[Result], object]) -> None:
    """Every case of the family agrees."""
    differing = [
        f"{pair.expected['name']}: want {aspect(pair.expected)}, have {aspect(pair.actual)}"
        for pair in pairs(family)
        if aspect(pair.expected) != aspect(pair.actual)
    ]
    assert not differing, "\n".join(differing[:3])


@pytest.mark.parametrize("family", ["taints", "nodeaffinity", "resources", "scoring", "images", "ports", "gates"])
def test_words_the_failure_as_kube_scheduler(family: str) -> None:
    """The message is the reference's, where no PostFilter plugin has added to it."""
    compared = [pair for pair in pairs(family) if not pair.expected["postFilterCode"]]
    assert compared
    for pair in compared:
        assert pair.actual["message"] == pair.expected["message"], pair.expected["name"]


@pytest.mark.parametrize(
    ("family", "left_out"),
    [
        pytest.param("taints", 0, id="taints"),
        pytest.param("nodeaffinity", 0, id="nodeaffinity"),
        pytest.param("resources", 0, id="resources"),
        pytest.param("scoring", 0, id="scoring"),
        pytest.param("images", 0, id="images"),
        pytest.param("ports", NEEDS_NODE_DECLARED_FEATURES, id="ports"),
        pytest.param("gates", 0, id="gates"),
    ],
)
def test_hardly_a_case_is_left_out(family: str, left_out: int) -> None:
    """No more cases are left out than those of plugins that are known to be missing."""
    assert len(pairs(family)) >= CASES_PER_FAMILY - left_out
