"""Tests of desired_state(): scheduler names, references, args, and problems with their paths."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.profiles.desired_profiles import (
    DesiredProfile,
    DesiredState,
    PluginConfigValidation,
    ProfileOwnership,
    ProfileQueueSort,
    QueueSort,
    decide_queue_sort,
    desired_state,
)
from bayplan.settings.profile_selection import ProfileSelection

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import Problem
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from tests.support.manifests import Manifest, most_allocated, plugin_config_manifest, profile_manifest
from tests.support.tables import table

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


@table(
    "first, second, holder",
    ("older", {"name": "b", "age": 1}, {"name": "a", "age": 2}, "b"),
    ("same-age-by-name", {"name": "b", "age": 1}, {"name": "a", "age": 1}, "a"),
    ("own-name-is-no-advantage", {"name": "shared", "age": 2}, {"name": "a", "age": 1}, "a"),
    (
        "older-is-being-deleted",
        {"name": "b", "age": 1, "deletionTimestamp": "2026-01-02T00:00:00Z"},
        {"name": "a", "age": 2},
        "a",
    ),
)
def test_the_oldest_claim_holds_a_name(first: Manifest, second: Manifest, holder: str) -> None:
    """The oldest claim holds a scheduler name, whatever the order, and the other profile's problem names the holder."""
    claims = [profile_manifest(spec={"schedulerName": "shared"}, **dict(one)) for one in (first, second)]
    for order in (claims, claims[::-1]):
        state = validate(*order)
        assert [one.meta.name for one in state.profiles if one.holds_name] == [holder]
        for loser in state.profiles:
            if not loser.holds_name:
                assert paths(loser) == ["spec.schedulerName"]
                assert f'held by SchedulerProfile "{holder}"' in loser.problems[0].message


def test_an_invalid_profile_keeps_its_claim() -> None:
    """An invalid profile still holds its scheduler name."""
    older = profile_manifest("a", {"schedulerName": "shared", "percentageOfNodesToScore": 500}, age=1)
    state = validate(older, profile_manifest("b", {"schedulerName": "shared"}, age=2))
    assert profile_of(state, "a").holds_name
    assert not profile_of(state, "b").holds_name


@table("allowed, problems", ("not-allowed", False, ["spec.schedulerName"]), ("allowed", True, []))
def test_default_scheduler_must_be_allowed(allowed: bool, problems: list[str]) -> None:
    """The name default-scheduler is rejected unless the operator allows it."""
    claim = profile_manifest("x", {"schedulerName": "default-scheduler"})
    (profile,) = validate(claim, allow_default_scheduler=allowed).profiles
    assert (paths(profile), profile.holds_name) == (problems, allowed)


def test_the_revision_includes_the_versions_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of a plugin that is not built in is another revision; without such plugins nothing changes."""
    cases: tuple[dict[str, str], ...] = ({}, {"ImageLocality": "images 1.0"}, {"ImageLocality": "images 1.1"})
    revisions = []
    for versions in cases:
        monkeypatch.setattr(Registry, "versions", lambda *_, versions=versions: versions)
        (profile,) = validate(profile_manifest("batch")).profiles
        assert profile.config is not None
        revisions.append(profile.config.revision())
    assert revisions[0] == ProfileConfig(scheduler_name="batch").revision()
    assert len(set(revisions)) == 3


@table(
    "spec, configs, path, words",
    (
        "missing",
        {"pluginConfigRefs": [{"name": "pack"}, {"name": "pakc"}]},
        [plugin_config_manifest()],
        "spec.pluginConfigRefs[1].name",
        'there is no PluginConfig "pakc" (did you mean "pack"?)',
    ),
    (
        "invalid",
        {"pluginConfigRefs": [{"name": "pack"}]},
        [plugin_config_manifest(args={"scoringStrategy": {"type": "Most"}})],
        "spec.pluginConfigRefs[0].name",
        "spec.args.scoringStrategy.type",
    ),
    (
        "also-inline",
        {"pluginConfig": [{"name": "NodeResourcesFit"}], "pluginConfigRefs": [{"name": "pack"}]},
        [plugin_config_manifest()],
        "spec.pluginConfigRefs[0].name",
        "which pluginConfig[0] configures already",
    ),
    (
        "two-references",
        {"pluginConfigRefs": [{"name": "pack"}, {"name": "spread"}]},
        [plugin_config_manifest(), plugin_config_manifest("spread")],
        "spec.pluginConfigRefs[1].name",
        'which PluginConfig "pack" configures already',
    ),
    (
        "being-deleted",
        {"pluginConfigRefs": [{"name": "pack"}]},
        [plugin_config_manifest(deletionTimestamp="2026-01-02T00:00:00Z")],
        "spec.pluginConfigRefs[0].name",
        'there is no PluginConfig "pack"',
    ),
)
def test_a_bad_reference_is_reported(spec: Manifest, configs: list[Manifest], path: str, words: str) -> None:
    """A reference that cannot be resolved is one problem with its own path."""
    (profile,) = validate(profile_manifest(spec=spec), *configs).profiles
    assert paths(profile) == [path]
    assert words in profile.problems[0].message


def test_every_problem_is_reported() -> None:
    """All problems of a profile are reported together, and the rest of its spec is read."""
    spec: dict[str, Any] = {
        "schedulerName": "shared",
        "percentageOfNodesToScore": 101,
        "pluginConfigRefs": [{"name": "gone"}],
        "plugins": {"score": {"enabled": [{"name": "Nothing"}]}},
    }
    older = profile_manifest("a", {"schedulerName": "shared"}, age=1)
    profile = profile_of(validate(older, profile_manifest("b", spec, age=2)), "b")
    assert paths(profile) == ["spec.percentageOfNodesToScore", "spec.schedulerName", "spec.pluginConfigRefs[0].name"]
    assert profile.config is not None
    assert profile.config.plugins.score.enabled[0].name == "Nothing"


def test_a_spec_of_the_wrong_type_is_a_problem() -> None:
    """A spec of the wrong type is a problem and not an exception."""
    manifest = {**profile_manifest("x"), "spec": "text"}
    (profile,) = validate(manifest).profiles
    assert profile.scheduler_name == "x"


@table(
    "built, written",
    ("plugins", "plugins.score", "spec.plugins.score"),
    ("inline", "pluginConfig[0].args.x", "spec.pluginConfig[0].args.x"),
    ("referenced", "pluginConfig[1].args.x", "spec.pluginConfigRefs[0]"),
    ("whole", "", "spec"),
)
def test_paths_of_the_merged_profile_are_translated(built: str, written: str) -> None:
    """The path of a problem in the merged profile is translated to the path in the object."""
    spec = {"pluginConfig": [{"name": "NodeAffinity"}], "pluginConfigRefs": [{"name": "pack"}]}
    (profile,) = validate(profile_manifest(spec=spec), plugin_config_manifest()).profiles
    assert profile.located(Problem(built, "is wrong")).path == written


@table(
    "plugin, args, expected",
    ("valid", "NodeResourcesFit", most_allocated(), []),
    ("kube-scheduler-plugin", "InterPodAffinity", {"hardPodAffinityWeight": 5}, []),
    ("unknown-plugin", "NodeResourceFit", {}, ["spec.plugin"]),
    ("plugin-without-args", "NodeName", {"x": 1}, ["spec.args"]),
    ("kind-alone", "NodeName", {"kind": "NodeNameArgs"}, []),
    (
        "every-problem",
        "NodeResourcesFit",
        {"ignoredResourceGroups": ["a/b"], "scoringStrategy": {"type": "x"}},
        ["spec.args.ignoredResourceGroups[0]", "spec.args.scoringStrategy.type"],
    ),
    ("no-plugin", "", {}, ["spec.plugin"]),
)
def test_plugin_configs_are_validated_by_their_plugin(plugin: str, args: Manifest, expected: list[str]) -> None:
    """A PluginConfig is valid if its plugin exists and accepts its args."""
    (config,) = validate(plugin_config_manifest("c", plugin, args)).plugin_configs
    assert sorted(problem.path for problem in config.problems) == expected
    assert (config.entry is None) == bool(expected)


def test_referenced_by_names_every_profile() -> None:
    """The field referencedBy names invalid profiles, too."""
    state = validate(
        plugin_config_manifest("pack"),
        profile_manifest("z", {"pluginConfigRefs": [{"name": "pack"}]}),
        profile_manifest("a", {"pluginConfigRefs": [{"name": "pack"}], "percentageOfNodesToScore": 900}),
        profile_manifest("n"),
    )
    assert state.plugin_configs[0].referenced_by == ("a", "z")


PRIORITY, FAIR, AGE = ("PrioritySort", ""), ("FairSort", ""), ("AgeSort", "")


def row(profile: str, live: QueueSort | None, wanted: QueueSort | None) -> ProfileQueueSort:
    return ProfileQueueSort(profile, live, wanted)


@table(
    "profiles, ready, waiting",
    ("no-change", [row("a", PRIORITY, PRIORITY), row("b", None, PRIORITY)], "ab", {}),
    ("single-profile", [row("a", PRIORITY, FAIR)], "a", {}),
    ("one-of-two-waits", [row("a", PRIORITY, FAIR), row("b", PRIORITY, PRIORITY)], "b", {"a": ("b",)}),
    ("all-together", [row("a", PRIORITY, FAIR), row("b", PRIORITY, FAIR)], "ab", {}),
    ("no-agreement", [row("a", PRIORITY, FAIR), row("b", PRIORITY, AGE)], "", {"a": ("b",), "b": ("a",)}),
    ("invalid-profile-keeps-its-queue-sort", [row("a", PRIORITY, FAIR), row("b", PRIORITY, None)], "", {"a": ("b",)}),
    ("new-profile-waits", [row("a", PRIORITY, PRIORITY), row("b", None, FAIR)], "a", {"b": ("a",)}),
    (
        "new-profiles-follow-live-ones",
        [row("a", PRIORITY, FAIR), row("b", None, FAIR), row("c", None, PRIORITY)],
        "ab",
        {"c": ("a",)},
    ),
    ("oldest-goes-first", [row("a", None, FAIR), row("b", None, PRIORITY)], "a", {"b": ("a",)}),
    ("profile-without-queue-sort-does-not-count", [row("a", None, None), row("b", None, PRIORITY)], "b", {}),
    ("other-args-are-another-queue-sort", [row("a", PRIORITY, ("PrioritySort", "x"))], "a", {}),
    ("no-profiles", [], "", {}),
)
def test_profiles_wait_for_a_common_queue_sort(
    profiles: list[ProfileQueueSort], ready: str, waiting: dict[str, tuple[str, ...]]
) -> None:
    """A profile waits while a live profile has another QueueSort, and the decision names that profile."""
    decision = decide_queue_sort(profiles)
    assert (decision.ready, decision.waiting) == (frozenset(ready), waiting)


TIER_A = ProfileSelection("tier=a")
TIER_B = ProfileSelection("tier=b")


def profile(name: str, tier: str | None = None, spec: Manifest | None = None, age: int = 0) -> Manifest:
    labels = {} if tier is None else {"labels": {"tier": tier}}
    return profile_manifest(name, spec, age=age, **labels)


def desired_for(selection: ProfileSelection, *profiles: Manifest, configs: tuple[Manifest, ...] = ()) -> DesiredState:
    return desired_state(profiles, configs, PluginConfigValidation(in_tree_registry()), selection=selection)


@table("own_age, holds", ("own claim is older", 1, True), ("other claim is older", 3, False))
def test_the_oldest_claim_wins_over_all_profiles(own_age: int, holds: bool) -> None:
    """All processes agree that the oldest claim holds a name."""
    shared = {"schedulerName": "shared"}
    profiles = [profile("mine", "a", shared, own_age), profile("theirs", "b", shared, 2)]
    ours, others = desired_for(TIER_A, *profiles), desired_for(TIER_B, *profiles)
    assert ours.profiles[0].holds_name is holds
    assert others.profiles[0].holds_name is not holds
    assert ours.elsewhere == (set() if holds else {"shared"})


def test_plugin_configs_are_validated_equally_everywhere() -> None:
    """Every process computes the same status of a PluginConfig, so the last writer does not matter."""
    refers = {"pluginConfigRefs": [{"name": "pack"}]}
    profiles = [profile("mine", "a", refers), profile("theirs", "b", refers)]
    found = [
        desired_for(selection, *profiles, configs=(plugin_config_manifest("pack"),)).plugin_configs
        for selection in (TIER_A, TIER_B)
    ]
    assert found[0] == found[1]
    assert found[0][0].referenced_by == ("mine", "theirs")


def test_serves_is_unknown_for_other_names() -> None:
    """A name is served by this process, by another one, or is unknown."""
    served = ProfileOwnership(TIER_A)
    assert served.update(desired_for(TIER_A, profile("mine", "a"), profile("theirs", "b")))
    assert [served.serves(name) for name in ("mine", "theirs", "unselected")] == [True, False, None]
    assert not served.update(desired_for(TIER_A, profile("theirs", "b")))
    assert served.serves("mine") is None


@table(
    "selection, later, is_new",
    ("newly selected", TIER_A, profile("other", "a"), True),
    ("not selected", TIER_A, profile("other", "b"), False),
    ("no selection", None, profile("other", "a"), False),
)
def test_a_newly_selected_profile_is_detected(
    selection: ProfileSelection | None, later: Manifest, is_new: bool
) -> None:
    """A newly selected profile is detected, because its stored revisions must be read again."""
    served = ProfileOwnership(selection)
    served.update(desired_for(TIER_A, profile("mine", "a")))
    assert served.has_new_profiles([profile("mine", "a"), later]) is is_new


def test_no_profile_is_new_at_the_start() -> None:
    """At the start no profile is new, because all stored revisions have been read."""
    assert not ProfileOwnership(TIER_A).has_new_profiles([profile("mine", "a")])
