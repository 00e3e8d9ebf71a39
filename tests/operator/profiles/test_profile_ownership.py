"""Tests of a process with a selection of profiles: validated profiles, and names that other processes hold."""

from __future__ import annotations

import pytest
from bayplan.profiles.desired_profiles import DesiredState, PluginConfigValidation, ProfileOwnership, desired_state
from bayplan.settings.profile_selection import ProfileSelection

from scheduler_core.in_tree import in_tree_registry
from tests.support.manifests import Manifest, plugin_config_manifest, profile_manifest

TIER_A = ProfileSelection("tier=a")
TIER_B = ProfileSelection("tier=b")


def profile(name: str, tier: str | None = None, spec: Manifest | None = None, age: int = 0) -> Manifest:
    """Return a profile with a label."""
    labels = {} if tier is None else {"labels": {"tier": tier}}
    return profile_manifest(name, spec, age=age, **labels)


def desired_for(selection: ProfileSelection, *profiles: Manifest, configs: tuple[Manifest, ...] = ()) -> DesiredState:
    return desired_state(profiles, configs, PluginConfigValidation(in_tree_registry()), selection=selection)


def test_only_matching_profiles_are_validated() -> None:
    """Only profiles that match the selection are validated; the other names are scheduled elsewhere."""
    state = desired_for(TIER_A, profile("mine", "a"), profile("theirs", "b"), profile("unselected"))
    assert [one.meta.name for one in state.profiles] == ["mine"]
    assert state.elsewhere == {"theirs", "unselected"}


@pytest.mark.parametrize(
    ("own_age", "holds"),
    [pytest.param(1, True, id="own claim is older"), pytest.param(3, False, id="other claim is older")],
)
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


@pytest.mark.parametrize(
    ("selection", "later", "is_new"),
    [
        pytest.param(TIER_A, profile("other", "a"), True, id="newly selected"),
        pytest.param(TIER_A, profile("other", "b"), False, id="not selected"),
        pytest.param(None, profile("other", "a"), False, id="no selection"),
    ],
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
