"""Validation of ``plugins`` and ``pluginConfig``."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, repeated_plugin_config
from scheduler_core.config.validation import validate
from tests.support.problems import problems_in


def enabled(point: str, *names: str) -> dict[str, Any]:
    return {point: {"enabled": [{"name": name} for name in names]}}


def test_points_are_in_the_order_of_a_cycle() -> None:
    """points() returns every extension point of KubeSchedulerConfiguration v1, spelled as in the API."""
    assert list(Plugins().points()) == [
        "preEnqueue",
        "queueSort",
        "preFilter",
        "filter",
        "postFilter",
        "preScore",
        "score",
        "reserve",
        "permit",
        "preBind",
        "bind",
        "postBind",
        "multiPoint",
    ]


@pytest.mark.parametrize(
    "plugins",
    [
        pytest.param({}, id="empty"),
        pytest.param({"score": None}, id="null"),
        pytest.param(enabled("score", "A", "B"), id="several"),
        pytest.param({"filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "A"}]}}, id="only-one"),
        pytest.param({"filter": {"disabled": [{"name": "A"}, {"name": "A"}]}}, id="disabled-twice"),
        pytest.param({"score": {"enabled": [{"name": "A", "weight": 0}]}}, id="weight-0"),
        pytest.param({"score": {"enabled": [{"name": "A", "weight": 2**31 - 1}]}}, id="largest-weight"),
    ],
)
def test_valid_plugins(plugins: dict[str, Any]) -> None:
    """Plugin sets that kube-scheduler accepts are valid."""
    assert problems_in(lambda: validate(Plugins, plugins)) == []


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        pytest.param(
            enabled("score", "A", "B", "A"), 'score.enabled[2].name: "A" is already enabled by an earlier', id="twice"
        ),
        pytest.param(enabled("filter", "*"), 'filter.enabled[0].name: "*" can only be disabled', id="all-enabled"),
        pytest.param(enabled("queueSort", "A", "B"), "queueSort.enabled[1]: only one plugin can order", id="two-sorts"),
        pytest.param(
            enabled("scores", "A"), "scores: unknown field; remove it or correct its name (did you", id="point"
        ),
        pytest.param(enabled("filter", ""), "filter.enabled[0].name: must not be empty", id="no-name"),
        pytest.param(
            {"score": {"enabled": [{"name": "A", "weight": -1}]}},
            "score.enabled[0].weight: must be at least 0, not -1",
            id="negative-weight",
        ),
        pytest.param(
            {"score": {"enabled": [{"name": "A", "weight": 2**31}]}},
            "score.enabled[0].weight: must be at most 2147483647",
            id="weight-beyond-32-bits",
        ),
        pytest.param({"filter": {"enabled": ["A"]}}, "filter.enabled[0]: must be a mapping of fields", id="bare-name"),
    ],
)
def test_invalid_plugins(plugins: dict[str, Any], expected: str) -> None:
    """A problem of a plugin set is reported at the invalid entry."""
    found = problems_in(lambda: validate(Plugins, plugins))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_plugin_is_configured_once() -> None:
    """Every duplicate of a plugin in pluginConfig is reported with its path."""
    entries = tuple(PluginConfig(name=name) for name in ("A", "B", "A", "A"))
    found = [problem.location for problem in repeated_plugin_config(entries)]
    assert found == [("pluginConfig", 2, "name"), ("pluginConfig", 3, "name")]
