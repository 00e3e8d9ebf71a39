"""The merge of a profile's plugins with the defaults, and the expansion of multiPoint.

The cases follow kube-scheduler v1.36.3's own tests (``apis/config/v1/default_plugins_test.go``,
``framework/runtime/framework_test.go``).
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.extension_points import (
    POINT_CLASSES,
    BindPlugin,
    FilterPlugin,
    Plugin,
    QueueSortPlugin,
    ScorePlugin,
)
from scheduler_core.framework.registry import Registry, ResolvedPlugin, resolve, unknown_config_problem
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import plugin_set
from tests.support.tables import table

JOURNAL = Journal()


def concrete(name: str, *bases: type[Plugin]) -> type[Plugin]:
    """Return a plugin class that implements the points of ``bases``; it is never instantiated."""
    made: type[Plugin] = type(name, bases, {"name": name})
    made.__abstractmethods__ = frozenset()
    return made


REGISTRY = Registry(
    [
        *(concrete(name, FilterPlugin, ScorePlugin) for name in ("D1", "D2", "D3", "C1", "C2")),
        concrete("Sort", QueueSortPlugin),
        concrete("Sort2", QueueSortPlugin),
        concrete("Binder", BindPlugin),
        concrete("OnlyFilter", FilterPlugin),
        recorder("Everything", JOURNAL),
    ]
)
DEFAULTS = Plugins(multi_point=plugin_set("Sort", "D1=3", "D2", "D3=0", "Binder"))


class Case(NamedTuple):
    """A profile's plugins, and the plugins that run at Filter and Score."""

    custom: Plugins
    filters: list[str]
    scores: list[str]


PRECEDENCE = {
    "defaults": Case(Plugins(), ["D1", "D2", "D3"], ["D1=3", "D2=1", "D3=1"]),
    "custom-multi-point-comes-after-the-defaults": Case(
        Plugins(multi_point=plugin_set("C1=4")), ["D1", "D2", "D3", "C1"], ["D1=3", "D2=1", "D3=1", "C1=4"]
    ),
    "specific-point-comes-after-multi-point": Case(
        Plugins(filter=plugin_set("C1"), multi_point=plugin_set("C2")),
        ["D1", "D2", "D3", "C2", "C1"],
        ["D1=3", "D2=1", "D3=1", "C2=1"],
    ),
    "re-enabled-default-keeps-its-place-and-takes-the-weight": Case(
        Plugins(multi_point=plugin_set("C1", "D2=9")), ["D1", "D2", "D3", "C1"], ["D1=3", "D2=9", "D3=1", "C1=1"]
    ),
    "re-enabled-default-without-a-weight-has-weight-1": Case(
        Plugins(multi_point=plugin_set("D1")), ["D1", "D2", "D3"], ["D1=1", "D2=1", "D3=1"]
    ),
    "disabled-by-name": Case(Plugins(multi_point=plugin_set(disabled=["D2"])), ["D1", "D3"], ["D1=3", "D3=1"]),
    "disabled-and-enabled-moves-to-the-end": Case(
        Plugins(multi_point=plugin_set("C1", "D1=2", disabled=["D1"])),
        ["D2", "D3", "C1", "D1"],
        ["D2=1", "D3=1", "C1=1", "D1=2"],
    ),
    "star-disables-all-defaults": Case(
        Plugins(multi_point=plugin_set("D3", "C1", "Sort", "Binder", disabled=["*"])), ["D3", "C1"], ["D3=1", "C1=1"]
    ),
    "disabled-at-one-point": Case(Plugins(score=plugin_set(disabled=["D1"])), ["D1", "D2", "D3"], ["D2=1", "D3=1"]),
    "star-at-one-point-stops-the-expansion": Case(
        Plugins(score=plugin_set("D2=7", "C1=2", disabled=["*"])), ["D1", "D2", "D3"], ["D2=7", "C1=2"]
    ),
    "specific-weight-overrides-multi-point": Case(
        Plugins(score=plugin_set("D2=5"), multi_point=plugin_set("D2=9")), ["D1", "D2", "D3"], ["D2=5", "D1=3", "D3=1"]
    ),
    "specific-weight-0-is-1-and-not-the-default": Case(
        Plugins(score=plugin_set("D1=0")), ["D1", "D2", "D3"], ["D1=1", "D2=1", "D3=1"]
    ),
    "overridden-first-then-multi-point-then-the-points-own": Case(
        Plugins(filter=plugin_set("C2", "D3", "C1", "D1")), ["D3", "D1", "D2", "C2", "C1"], ["D1=3", "D2=1", "D3=1"]
    ),
    "overriding-custom-multi-point": Case(
        Plugins(filter=plugin_set("C1"), multi_point=plugin_set("C2", "C1")),
        ["C1", "D1", "D2", "D3", "C2"],
        ["D1=3", "D2=1", "D3=1", "C2=1", "C1=1"],
    ),
    "disabled-at-multi-point-and-enabled-at-a-point": Case(
        Plugins(filter=plugin_set("D2"), multi_point=plugin_set(disabled=["D2"])), ["D1", "D3", "D2"], ["D1=3", "D3=1"]
    ),
    "disabled-and-enabled-at-one-point": Case(
        Plugins(score=plugin_set("D1=4", disabled=["D1"])), ["D1", "D2", "D3"], ["D2=1", "D3=1", "D1=4"]
    ),
    "multi-point-adds-only-implemented-points": Case(
        Plugins(multi_point=plugin_set("OnlyFilter")), ["D1", "D2", "D3", "OnlyFilter"], ["D1=3", "D2=1", "D3=1"]
    ),
}


def shown(plugins: tuple[ResolvedPlugin, ...]) -> list[str]:
    return [f"{plugin.name}={plugin.weight}" for plugin in plugins]


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in PRECEDENCE.items()])
def test_precedence(case: Case) -> None:
    """A specific point takes precedence over custom multiPoint, and custom multiPoint over the defaults."""
    resolved, problems = resolve(case.custom, DEFAULTS, REGISTRY)
    assert problems == []
    assert [plugin.name for plugin in resolved["filter"]] == case.filters
    assert shown(resolved["score"]) == case.scores


def test_defaults_of_single_points_merge_point_by_point() -> None:
    """Plugins that the profile adds at a point are last; repeated plugins keep their position."""
    defaults = Plugins(multi_point=plugin_set("Sort", "Binder"), filter=plugin_set("D1", "D2", disabled=["D3"]))
    custom = Plugins(filter=plugin_set("C1", "D1"))
    resolved, problems = resolve(custom, defaults, REGISTRY)
    assert (problems, [plugin.name for plugin in resolved["filter"]]) == ([], ["D1", "D2", "C1"])


def test_multi_point_reaches_every_point() -> None:
    """A plugin that implements all points except QueueSort runs at all of them."""
    resolved, problems = resolve(Plugins(multi_point=plugin_set("Everything=5")), DEFAULTS, REGISTRY)
    assert problems == []
    for point in POINT_CLASSES:
        weight = 5 if point == "score" else 0
        assert (ResolvedPlugin("Everything", weight) in resolved[point]) is (point != "queueSort")


@table(
    "custom, path, message",
    (
        "unknown-with-a-suggestion",
        Plugins(score=plugin_set("D1", "D11")),
        "plugins.score.enabled[1].name",
        'there is no plugin "D11" (did you mean "D1"?)',
    ),
    (
        "unknown-without-a-suggestion",
        Plugins(multi_point=plugin_set("Zzzzzz")),
        "plugins.multiPoint.enabled[0].name",
        'there is no plugin "Zzzzzz"; correct the name or install its package',
    ),
    (
        "point-not-implemented",
        Plugins(score=plugin_set("OnlyFilter")),
        "plugins.score.enabled[0].name",
        'plugin "OnlyFilter" does not serve score; it serves filter: move the entry there',
    ),
    (
        "two-queue-sort-plugins",
        Plugins(multi_point=plugin_set("Sort2")),
        "plugins.queueSort",
        "exactly one plugin must order the queue, found Sort, Sort2; disable the others",
    ),
    (
        "no-queue-sort-plugin",
        Plugins(queue_sort=plugin_set(disabled=["*"])),
        "plugins.queueSort",
        "exactly one plugin must order the queue, found none; enable PrioritySort",
    ),
    (
        "no-bind-plugin",
        Plugins(multi_point=plugin_set(disabled=["Binder"])),
        "plugins.bind",
        "at least one plugin must bind; enable DefaultBinder",
    ),
)
def test_problems(custom: Plugins, path: str, message: str) -> None:
    """Each problem has its field path and a message that states the correction."""
    _, problems = resolve(custom, DEFAULTS, REGISTRY)
    assert [problem.path for problem in problems] == [path]
    assert problems[0].message.startswith(message)


def test_all_unknown_plugins_are_reported() -> None:
    """The search for problems continues after the first unknown plugin."""
    custom = Plugins(score=plugin_set("X1", "X2"), filter=plugin_set("X3"))
    _, problems = resolve(custom, DEFAULTS, REGISTRY)
    assert [problem.path for problem in problems] == [
        "plugins.filter.enabled[0].name",
        "plugins.score.enabled[0].name",
        "plugins.score.enabled[1].name",
    ]


@table(
    "custom, paths",
    (
        "unknown-at-another-point",
        Plugins(score=plugin_set("Unknown"), bind=plugin_set(disabled=["*"])),
        ["plugins.score.enabled[0].name", "plugins.bind"],
    ),
    ("unknown-at-the-point", Plugins(bind=plugin_set("Unknown", disabled=["*"])), ["plugins.bind.enabled[0].name"]),
    (
        "unknown-at-multi-point",
        Plugins(multi_point=plugin_set("Unknown", disabled=["*"])),
        ["plugins.multiPoint.enabled[0].name"],
    ),
)
def test_missing_plugins_are_reported_with_unknown_ones(custom: Plugins, paths: list[str]) -> None:
    """A missing plugin is reported unless an unknown plugin may be the missing one."""
    resolved, problems = resolve(custom, DEFAULTS, REGISTRY)
    assert [problem.path for problem in problems] == paths
    assert resolved == {}


@table(
    "name, message",
    ("known", "D1", ""),
    ("kube-scheduler-only", "InterPodAffinity", ""),
    ("unknown", "Unknown", 'there is no plugin "Unknown"'),
)
def test_configuring_an_unknown_plugin(name: str, message: str) -> None:
    """Args of kube-scheduler's plugins are accepted even if the plugin does not exist."""
    problem = unknown_config_problem(name, REGISTRY)
    assert problem.startswith(message)
    assert bool(problem) is bool(message)
