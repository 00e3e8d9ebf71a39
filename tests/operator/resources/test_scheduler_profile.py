"""Tests of SchedulerProfile: its scheduler name, and its profile with the referenced PluginConfigs."""

from __future__ import annotations

from typing import Any

from bayplan.resources.scheduler_profile import SchedulerProfile

from scheduler_core.config.plugin_set_types import PluginConfig
from tests.support.manifests import most_allocated, profile_manifest
from tests.support.problems import problems_in
from tests.support.tables import table


def profile(**spec: Any) -> SchedulerProfile:
    return SchedulerProfile.from_object(profile_manifest("batch", spec))


@table(
    "spec, name",
    ("default", {}, "batch"),
    ("explicit", {"schedulerName": "training"}, "training"),
    ("null", {"schedulerName": None}, "batch"),
)
def test_scheduler_name(spec: dict[str, Any], name: str) -> None:
    """The scheduler name of a profile is its own name unless schedulerName is set."""
    assert profile(**spec).scheduler_name == profile(**spec).profile_config().scheduler_name == name


def test_profile_config_is_complete() -> None:
    """The profile has the whole spec, and references are replaced by their args, in order."""
    spec = {
        "percentageOfNodesToScore": 30,
        "podInitialBackoffSeconds": 2,
        "podMaxBackoffSeconds": 20,
        "plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": 7}]}},
        "pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 5}}],
        "pluginConfigRefs": [{"name": "pack"}],
        "extenders": [{"urlPrefix": "http://extender", "filterVerb": "f"}],
    }
    made = profile(**spec).profile_config([PluginConfig(name="NodeResourcesFit", args=most_allocated())])
    assert made.document() == {
        "schedulerName": "batch",
        **{name: value for name, value in spec.items() if name != "pluginConfigRefs"},
        "pluginConfig": [
            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 5}},
            {"name": "NodeResourcesFit", "args": most_allocated()},
        ],
    }


def test_inline_and_referenced_args_have_the_same_revision() -> None:
    inline = profile(pluginConfig=[{"name": "NodeResourcesFit", "args": most_allocated()}])
    referring = profile(pluginConfigRefs=[{"name": "pack"}])
    entry = PluginConfig(name="NodeResourcesFit", args=most_allocated())
    assert inline.profile_config().revision() == referring.profile_config([entry]).revision()


@table("inline, referenced", ("inline-and-referenced", ["A"], ["A"]), ("referenced-twice", [], ["A", "A"]))
def test_a_plugin_configured_twice_is_an_error(inline: list[str], referenced: list[str]) -> None:
    """Args of a plugin from two places are an error."""
    made = profile(pluginConfig=[{"name": name} for name in inline])
    entries = [PluginConfig(name=name) for name in referenced]
    (found,) = problems_in(lambda: made.profile_config(entries))
    assert found.startswith('spec.pluginConfig[1].name: "A" is already configured by an earlier entry')


def test_all_problems_of_a_spec_are_reported() -> None:
    """All problems of a spec are reported, each with its path."""
    faults = {
        "percentageOfNodesToScore": 101,
        "podInitialBackoffSeconds": 9,
        "podMaxBackoffSeconds": 1,
        "plugin": {},
        "plugins": {"score": {"enabled": [{"name": "*"}, {"name": "A", "weight": "x"}]}},
        "pluginConfigRefs": [{"name": "pack"}, {"name": "pack"}, {}],
        "extenders": [{"urlPrefix": "http://e", "prioritizeVerb": "p"}],
    }
    paths = [problem.partition(": ")[0] for problem in problems_in(lambda: profile(**faults))]
    assert sorted(paths) == [
        "spec.extenders[0].weight",
        "spec.percentageOfNodesToScore",
        "spec.plugin",
        "spec.pluginConfigRefs[1].name",
        "spec.pluginConfigRefs[2].name",
        "spec.plugins.score.enabled[0].name",
        "spec.plugins.score.enabled[1].weight",
        "spec.podMaxBackoffSeconds",
    ]
