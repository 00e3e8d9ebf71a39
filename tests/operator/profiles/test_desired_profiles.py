"""Tests of the desired state of all objects: names, references, args, and every problem with its path."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.profiles.desired_profiles import DesiredProfile, DesiredState, desired_state
from bayplan.profiles.plugin_config_validation import PluginConfigValidation

from scheduler_core.errors import Problem
from scheduler_core.in_tree import in_tree_registry
from tests.support.manifests import Manifest, most_allocated, plugin_config_manifest, profile_manifest

REGISTRY = in_tree_registry()


def validate(*objects: Manifest, allow_default_scheduler: bool = False) -> DesiredState:
    profiles = [one for one in objects if one["kind"] == "SchedulerProfile"]
    configs = [one for one in objects if one["kind"] == "PluginConfig"]
    return desired_state(
        profiles, configs, PluginConfigValidation(REGISTRY), allow_default_scheduler=allow_default_scheduler
    )


def profile_of(state: DesiredState, name: str) -> DesiredProfile:
    return next(one for one in state.profiles if one.meta.name == name)


def paths(profile: DesiredProfile) -> list[str]:
    return [problem.path for problem in profile.problems]


def test_a_profile_claims_its_own_name() -> None:
    """Without schedulerName the object's name is claimed."""
    (profile,) = validate(profile_manifest("batch")).profiles
    assert (profile.scheduler_name, profile.holds_name, profile.problems) == ("batch", True, ())
    assert profile.config is not None
    assert profile.config.scheduler_name == "batch"


@pytest.mark.parametrize(
    ("first", "second", "holder"),
    [
        pytest.param({"name": "b", "age": 1}, {"name": "a", "age": 2}, "b", id="older"),
        pytest.param({"name": "b", "age": 1}, {"name": "a", "age": 1}, "a", id="same-age-by-name"),
        pytest.param({"name": "shared", "age": 2}, {"name": "a", "age": 1}, "a", id="own-name-is-no-advantage"),
        pytest.param(
            {"name": "b", "age": 1, "deletionTimestamp": "2026-01-02T00:00:00Z"},
            {"name": "a", "age": 2},
            "a",
            id="the-older-is-being-deleted",
        ),
    ],
)
def test_the_oldest_claim_holds_a_name(first: Manifest, second: Manifest, holder: str) -> None:
    """Of two profiles that claim a name one holds it, in any order; the other's problem names the holder."""
    claims = [profile_manifest(spec={"schedulerName": "shared"}, **dict(one)) for one in (first, second)]
    for order in (claims, claims[::-1]):
        state = validate(*order)
        assert [one.meta.name for one in state.profiles if one.holds_name] == [holder]
        for loser in state.profiles:
            if not loser.holds_name:
                assert paths(loser) == ["spec.schedulerName"]
                assert f'held by SchedulerProfile "{holder}"' in loser.problems[0].message


def test_an_invalid_profile_keeps_its_claim() -> None:
    """An invalid edit does not give up the name."""
    older = profile_manifest("a", {"schedulerName": "shared", "percentageOfNodesToScore": 500}, age=1)
    state = validate(older, profile_manifest("b", {"schedulerName": "shared"}, age=2))
    assert profile_of(state, "a").holds_name
    assert not profile_of(state, "b").holds_name


@pytest.mark.parametrize(
    ("allowed", "problems"), [pytest.param(False, ["spec.schedulerName"], id="not"), pytest.param(True, [], id="yes")]
)
def test_default_scheduler_must_be_allowed(allowed: bool, problems: list[str]) -> None:
    """kube-scheduler's own name is rejected unless the operator allows it."""
    claim = profile_manifest("x", {"schedulerName": "default-scheduler"})
    (profile,) = validate(claim, allow_default_scheduler=allowed).profiles
    assert (paths(profile), profile.holds_name) == (problems, allowed)


def test_references_become_plugin_config() -> None:
    """Args of a PluginConfig come after the profile's own."""
    spec = {"pluginConfig": [{"name": "NodeAffinity", "args": {}}], "pluginConfigRefs": [{"name": "pack"}]}
    state = validate(profile_manifest(spec=spec), plugin_config_manifest(args=most_allocated()))
    (profile,) = state.profiles
    assert profile.problems == ()
    assert profile.config is not None
    assert [(one.name, one.args) for one in profile.config.plugin_config] == [
        ("NodeAffinity", {}),
        ("NodeResourcesFit", most_allocated()),
    ]


def test_an_edit_of_a_plugin_config_is_another_revision() -> None:
    """The revision includes the referenced args."""
    profile = profile_manifest(spec={"pluginConfigRefs": [{"name": "pack"}]})
    configs = [
        validate(profile, plugin_config_manifest(args=args)).profiles[0].config for args in ({}, most_allocated(), {})
    ]
    revisions = [config.revision() for config in configs if config is not None]
    assert revisions[0] == revisions[2] != revisions[1]


REFERENCE_RULES = [
    pytest.param(
        {"pluginConfigRefs": [{"name": "pack"}, {"name": "pakc"}]},
        [plugin_config_manifest()],
        "spec.pluginConfigRefs[1].name",
        'there is no PluginConfig "pakc" (did you mean "pack"?)',
        id="missing",
    ),
    pytest.param(
        {"pluginConfigRefs": [{"name": "pack"}]},
        [plugin_config_manifest(args={"scoringStrategy": {"type": "Most"}})],
        "spec.pluginConfigRefs[0].name",
        "spec.args.scoringStrategy.type",
        id="not-valid",
    ),
    pytest.param(
        {"pluginConfig": [{"name": "NodeResourcesFit"}], "pluginConfigRefs": [{"name": "pack"}]},
        [plugin_config_manifest()],
        "spec.pluginConfigRefs[0].name",
        "which pluginConfig[0] configures already",
        id="inline-too",
    ),
    pytest.param(
        {"pluginConfigRefs": [{"name": "pack"}, {"name": "spread"}]},
        [plugin_config_manifest(), plugin_config_manifest("spread")],
        "spec.pluginConfigRefs[1].name",
        'which PluginConfig "pack" configures already',
        id="two-references",
    ),
    pytest.param(
        {"pluginConfigRefs": [{"name": "pack"}]},
        [plugin_config_manifest(deletionTimestamp="2026-01-02T00:00:00Z")],
        "spec.pluginConfigRefs[0].name",
        'there is no PluginConfig "pack"',
        id="being-deleted",
    ),
]


@pytest.mark.parametrize(("spec", "configs", "path", "words"), REFERENCE_RULES)
def test_a_bad_reference_is_reported(spec: Manifest, configs: list[Manifest], path: str, words: str) -> None:
    """A reference that cannot be resolved is one problem at its own path."""
    (profile,) = validate(profile_manifest(spec=spec), *configs).profiles
    assert paths(profile) == [path]
    assert words in profile.problems[0].message


def test_every_problem_is_reported() -> None:
    """A bad field, a lost name and a missing reference are reported together, and the rest is validated."""
    spec: dict[str, Any] = {
        "schedulerName": "shared",
        "percentageOfNodesToScore": 101,
        "pluginConfigRefs": [{"name": "gone"}],
        "plugins": {"score": {"enabled": [{"name": "Nothing"}]}},
    }
    older = profile_manifest("a", {"schedulerName": "shared"}, age=1)
    profile = profile_of(validate(older, profile_manifest("b", spec, age=2)), "b")
    assert paths(profile) == [
        "spec.percentageOfNodesToScore",
        "spec.schedulerName",
        "spec.pluginConfigRefs[0].name",
    ]
    assert profile.config is not None
    assert profile.config.plugins.score.enabled[0].name == "Nothing"


def test_a_spec_that_cannot_be_read_at_all() -> None:
    """A spec of the wrong type is a problem and not an exception."""
    manifest = {**profile_manifest("x"), "spec": "text"}
    (profile,) = validate(manifest).profiles
    assert profile.scheduler_name == "x"


@pytest.mark.parametrize(
    ("built", "written"),
    [
        pytest.param("plugins.score", "spec.plugins.score", id="plugins"),
        pytest.param("pluginConfig[0].args.x", "spec.pluginConfig[0].args.x", id="inline"),
        pytest.param("pluginConfig[1].args.x", "spec.pluginConfigRefs[0]", id="referenced"),
        pytest.param("", "spec", id="whole"),
    ],
)
def test_problems_of_the_build_have_the_users_path(built: str, written: str) -> None:
    """A path of the merged profile is translated to one of the object."""
    spec = {"pluginConfig": [{"name": "NodeAffinity"}], "pluginConfigRefs": [{"name": "pack"}]}
    (profile,) = validate(profile_manifest(spec=spec), plugin_config_manifest()).profiles
    assert profile.located(Problem(built, "is wrong")).path == written


PLUGIN_CONFIG_RULES = [
    pytest.param("NodeResourcesFit", most_allocated(), [], id="valid"),
    pytest.param("InterPodAffinity", {"hardPodAffinityWeight": 5}, [], id="known-to-kube-scheduler"),
    pytest.param("NodeResourceFit", {}, ["spec.plugin"], id="unknown-plugin"),
    pytest.param("NodeName", {"x": 1}, ["spec.args"], id="takes-none"),
    pytest.param("NodeName", {"kind": "NodeNameArgs"}, [], id="kind-alone"),
    pytest.param(
        "NodeResourcesFit",
        {"ignoredResourceGroups": ["a/b"], "scoringStrategy": {"type": "x"}},
        ["spec.args.ignoredResourceGroups[0]", "spec.args.scoringStrategy.type"],
        id="every-problem",
    ),
    pytest.param("", {}, ["spec.plugin"], id="no-plugin"),
]


@pytest.mark.parametrize(("plugin", "args", "expected"), PLUGIN_CONFIG_RULES)
def test_plugin_configs_are_validated_by_their_plugin(plugin: str, args: Manifest, expected: list[str]) -> None:
    """A PluginConfig is valid if its plugin exists and accepts its args."""
    (config,) = validate(plugin_config_manifest("c", plugin, args)).plugin_configs
    assert sorted(problem.path for problem in config.problems) == expected
    assert (config.entry is None) == bool(expected)


def test_referenced_by_names_every_profile() -> None:
    """Invalid profiles count as references, too."""
    state = validate(
        plugin_config_manifest("pack"),
        profile_manifest("z", {"pluginConfigRefs": [{"name": "pack"}]}),
        profile_manifest("a", {"pluginConfigRefs": [{"name": "pack"}], "percentageOfNodesToScore": 900}),
        profile_manifest("n"),
    )
    assert state.plugin_configs[0].referenced_by == ("a", "z")
