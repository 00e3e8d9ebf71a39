"""Tests of the parity run: repeatable cases, and the comparison of results."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from hack.controlplane.binaries import CONTROL_PLANE, RECIPES, cache_dir
from tests.parity.oracle.agreement import ASPECTS, Tally, differences
from tests.parity.oracle.generation.families import FAMILIES, generate
from tests.support.tables import table

RESULT: dict[str, Any] = {
    "name": "c",
    "gated": None,
    "prefilter": None,
    "prefilterNodes": None,
    "nominatedOnly": False,
    "filter": {"b": {"code": "Unschedulable", "plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"]}},
    "feasible": ["a"],
    "scores": {"NodeResourcesFit": {"a": {"raw": 7, "weighted": 7}}},
    "totals": {"a": 7},
    "best": ["a"],
    "message": None,
    "postFilterCode": "",
    "postFilter": None,
    "preemptionMessage": None,
    "candidates": {},
    "clearedNominations": [],
}


@table("bent", ("plain", False), ("bent", True))
@pytest.mark.parametrize("family", FAMILIES)
def test_cases_depend_on_the_seed(family: str, bent: bool) -> None:
    """A seed generates the same cases again, and another seed others."""
    first, again, other = (json.dumps(generate(family, seed, 3, bent=bent)) for seed in (5, 5, 6))
    assert first == again
    assert first != other


@table(
    "change, aspects",
    ("equal", {}, []),
    ("feasible", {"feasible": ["a", "b"], "filter": {}}, ["filter", "reasons"]),
    ("raw-score", {"scores": {"NodeResourcesFit": {"a": {"raw": 8, "weighted": 7}}}}, ["raw"]),
    ("scores-of-a-plugin", {"scores": {}}, ["scores", "raw"]),
    ("total", {"totals": {"a": 8}}, ["totals"]),
    ("gate", {"gated": {"plugin": "SchedulingGates"}}, ["gated"]),
    ("aspect-that-does-not-apply", {"message": "anything"}, []),
)
def test_differing_aspects_are_returned(change: dict[str, Any], aspects: list[str]) -> None:
    """Only the aspects that differ are returned."""
    assert [each.aspect for each in differences(RESULT, copy.deepcopy(RESULT) | change)] == aspects


def test_a_missing_result_differs_in_every_aspect() -> None:
    """A missing result differs in every aspect."""
    tally = Tally()
    tally.add(RESULT, None)
    assert not tally.agrees
    assert sum(tally.agreed.values()) == 0
    assert {each.actual for each in tally.found} == {"no result"}
    assert set(tally.applied) <= set(ASPECTS)


def test_the_oracle_is_built_only_on_request() -> None:
    """The oracle is not part of the control plane, and its sources do not affect the control plane's cache."""
    peers = {"descheduler", "jobset", "karpenter", "kueue", "lws"}
    assert set(RECIPES) - set(CONTROL_PLANE) == {"e2e", "oracle", "prometheus", "promtool", "selectors", *peers}
    assert cache_dir("oracle") not in {cache_dir(name) for name in CONTROL_PLANE}
