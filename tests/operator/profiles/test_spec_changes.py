"""Tests of the short differences between specs."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.profiles.rollback import changes, changes_summary, unified_diff

FIT = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "LeastAllocated"}}}
PACK = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
TAINTS = {"name": "TaintToleration"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param({}, {}, [], id="equal"),
        pytest.param({"a": 1}, {"a": 2}, ["a: 1 → 2"], id="changed-value"),
        pytest.param({}, {"a": "x"}, ["+a: x"], id="added-field"),
        pytest.param({"a": [1, 2]}, {}, ["-a: [1, 2]"], id="removed-field"),
        pytest.param(
            {"pluginConfig": [TAINTS, FIT]},
            {"pluginConfig": [PACK, TAINTS]},
            ["pluginConfig[NodeResourcesFit].args.scoringStrategy.type: LeastAllocated → MostAllocated"],
            id="entries-by-name",
        ),
        pytest.param(
            {"enabled": []}, {"enabled": [TAINTS]}, ["+enabled[TaintToleration]", "-enabled: []"], id="added-entry"
        ),
        pytest.param({"x": [TAINTS, FIT]}, {"x": [FIT, TAINTS]}, ["order of entries"], id="order"),
        pytest.param({"a": "x" * 99}, {"a": "y"}, [f"a: {'x' * 44} ... → y"], id="long-values-are-cut"),
        pytest.param(
            {"extenders": [{"urlPrefix": "http://e", "weight": 1}]},
            {"extenders": [{"urlPrefix": "http://e", "weight": 2}]},
            ["extenders[http://e].weight: 1 → 2"],
            id="extenders-by-url",
        ),
    ],
)
def test_changes(old: dict[str, Any], new: dict[str, Any], expected: list[str]) -> None:
    """Each difference has its path, and list entries are identified by their names."""
    assert sorted(changes(old, new)) == sorted(expected)


@pytest.mark.parametrize(
    ("differences", "text"),
    [
        pytest.param([], "nothing", id="none"),
        pytest.param(["a"], "a", id="one"),
        pytest.param(["a", "b", "c"], "a and 2 more", id="several"),
    ],
)
def test_summary(differences: list[str], text: str) -> None:
    """The summary has the first difference and the number of the others."""
    assert changes_summary(differences) == text


def test_diff() -> None:
    """The unified diff has the format of ``diff -u`` and is empty for equal specs."""
    assert unified_diff({"a": 1}, {"a": 2}, ("now", "revision 1")).splitlines()[-2:] == ["-a: 1", "+a: 2"]
    assert unified_diff({"a": 1}, {"a": 1}, ("now", "revision 1")) == ""
