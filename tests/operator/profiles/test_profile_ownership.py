"""Tests of a process with a selection of profiles: what it validates, and what is known of the others."""

from __future__ import annotations

import pytest
from bayplan.profiles.desired_profiles import DesiredState, desired_state
from bayplan.profiles.plugin_config_validation import PluginConfigValidation
from bayplan.profiles.profile_ownership import ProfileOwnership
from bayplan.settings.profile_selection import ProfileSelection

from scheduler_core.in_tree import in_tree_registry
from tests.support.manifests import Manifest, plugin_config_manifest, profile_manifest

TIER_A = ProfileSelection("tier=a")
TIER_B = ProfileSelection("tier=b")


def profile(name: str, tier: str | None = None, spec: Manifest | None = None, age: int = 0) -> Manifest:
    """Return a profile with a label."""
    labels = {} if tier is None else {"labels": {"tier": tier}}
    return profile_manifest(name, spec, age=age, **labels)


def validated(selection: ProfileSelection, *profiles: Manifest, configs: tuple[Manifest, ...] = ()) -> DesiredState:
    return desired_state(profiles, configs, PluginConfigValidation(in_tree_registry()), selection=selection)


def test_only_matching_profiles_are_validated() -> None:
    """The names of the others are known as served elsewhere."""
    state = validated(TIER_A, profile("mine", "a"), profile("theirs", "b"), profile("nobodys"))
    assert [one.meta.name for one in state.profiles] == ["mine"]
    assert state.elsewhere == {"theirs", "nobodys"}


@pytest.mark.parametrize(
    ("mine_age", "holds"), [pytest.param(1, True, id="ours is older"), pytest.param(3, False, id="theirs is older")]
)
def test_the_oldest_claim_wins_over_all_profiles(mine_age: int, holds: bool) -> None:
    """It does not depend on the process: both agree on the holder of a name."""
    shared = {"schedulerName": "shared"}
    profiles = [profile("mine", "a", shared, mine_age), profile("theirs", "b", shared, 2)]
    ours, others = validated(TIER_A, *profiles), validated(TIER_B, *profiles)
    assert ours.profiles[0].holds_name is holds
    assert others.profiles[0].holds_name is not holds
    assert ours.elsewhere == (set() if holds else {"shared"})


def test_plugin_configs_are_validated_equally_everywhere() -> None:
    """Every process computes the same status of a PluginConfig, so that the last writer does not matter."""
    refers = {"pluginConfigRefs": [{"name": "pack"}]}
    profiles = [profile("mine", "a", refers), profile("theirs", "b", refers)]
    found = [
        validated(selection, *profiles, configs=(plugin_config_manifest("pack"),)).plugin_configs
        for selection in (TIER_A, TIER_B)
    ]
    assert found[0] == found[1]
    assert found[0][0].referenced_by == ("mine", "theirs")


def test_the_server_of_a_name() -> None:
    """This process, another one, or none."""
    served = ProfileOwnership(TIER_A)
    assert served.update(validated(TIER_A, profile("mine", "a"), profile("theirs", "b")))
    assert [served.serves(name) for name in ("mine", "theirs", "nobodys")] == [True, False, None]
    assert not served.update(validated(TIER_A, profile("theirs", "b")))
    assert served.serves("mine") is None


@pytest.mark.parametrize(
    ("selection", "later", "newcomer"),
    [
        pytest.param(TIER_A, profile("other", "a"), True, id="labelled ours"),
        pytest.param(TIER_A, profile("other", "b"), False, id="still theirs"),
        pytest.param(None, profile("other", "a"), False, id="all are ours"),
    ],
)
def test_a_newly_selected_profile_is_detected(
    selection: ProfileSelection | None, later: Manifest, newcomer: bool
) -> None:
    """Its revisions were stored by another process, and are read again."""
    served = ProfileOwnership(selection)
    served.update(validated(TIER_A, profile("mine", "a")))
    assert served.has_new_profiles([profile("mine", "a"), later]) is newcomer


def test_nothing_is_new_at_the_start() -> None:
    """The stored revisions were read before the first step."""
    assert not ProfileOwnership(TIER_A).has_new_profiles([profile("mine", "a")])
