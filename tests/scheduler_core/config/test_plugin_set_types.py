"""Validation of ``plugins`` and ``pluginConfig``."""

from __future__ import annotations

from typing import Any

from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, repeated_plugin_config
from scheduler_core.config.validation import validate
from tests.support.problems import problems_in
from tests.support.tables import table


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


@table(
    "plugins",
    ("empty", {}),
    ("null", {"score": None}),
    ("several", enabled("score", "A", "B")),
    ("only-one", {"filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "A"}]}}),
    ("disabled-twice", {"filter": {"disabled": [{"name": "A"}, {"name": "A"}]}}),
    ("weight-0", {"score": {"enabled": [{"name": "A", "weight": 0}]}}),
    ("largest-weight", {"score": {"enabled": [{"name": "A", "weight": 2**31 - 1}]}}),
)
def test_valid_plugins(plugins: dict[str, Any]) -> None:
    """Plugin sets that kube-scheduler accepts are valid."""
    assert problems_in(lambda: validate(Plugins, plugins)) == []


@table(
    "plugins, expected",
    ("twice", enabled("score", "A", "B", "A"), 'score.enabled[2].name: "A" is already enabled by an earlier'),
    ("all-enabled", enabled("filter", "*"), 'filter.enabled[0].name: "*" can only be disabled'),
    ("two-sorts", enabled("queueSort", "A", "B"), "queueSort.enabled[1]: only one plugin can order"),
    ("point", enabled("scores", "A"), "scores: unknown field; remove it or correct its name (did you"),
    ("no-name", enabled("filter", ""), "filter.enabled[0].name: must not be empty"),
    (
        "negative-weight",
        {"score": {"enabled": [{"name": "A", "weight": -1}]}},
        "score.enabled[0].weight: must be at least 0, not -1",
    ),
    (
        "weight-beyond-32-bits",
        {"score": {"enabled": [{"name": "A", "weight": 2**31}]}},
        "score.enabled[0].weight: must be at most 2147483647",
    ),
    ("bare-name", {"filter": {"enabled": ["A"]}}, "filter.enabled[0]: must be a mapping of fields"),
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
