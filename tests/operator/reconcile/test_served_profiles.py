"""What a process with a selection of profiles judges, and what it knows of the others."""

from __future__ import annotations

import pytest
from bayplan.reconcile.desired_state import DesiredState, desired_state
from bayplan.reconcile.profile_selection import ProfileSelection
from bayplan.reconcile.served_profiles import ServedProfiles

from scheduler_core.in_tree import in_tree_registry
from tests.support.manifests import Manifest, plugin_config_manifest, profile_manifest

TIER_A = ProfileSelection("tier=a")
TIER_B = ProfileSelection("tier=b")


def profile(name: str, tier: str | None = None, spec: Manifest | None = None, age: int = 0) -> Manifest:
    """A profile with a label."""
    labels = {} if tier is None else {"labels": {"tier": tier}}
    return profile_manifest(name, spec, age=age, **labels)


def judged(selection: ProfileSelection, *profiles: Manifest, configs: tuple[Manifest, ...] = ()) -> DesiredState:
    return desired_state(profiles, configs, in_tree_registry(), selection=selection)


def test_only_matching_profiles_are_judged() -> None:
    """The others' names are known as others'."""
    state = judged(TIER_A, profile("mine", "a"), profile("theirs", "b"), profile("nobodys"))
    assert [one.meta.name for one in state.profiles] == ["mine"]
    assert state.elsewhere == {"theirs", "nobodys"}


@pytest.mark.parametrize(
    ("mine_age", "holds"), [pytest.param(1, True, id="ours is older"), pytest.param(3, False, id="theirs is older")]
)
def test_the_oldest_claim_wins_over_all_profiles(mine_age: int, holds: bool) -> None:
    """Whichever process serves it: both sides agree on who holds a name."""
    shared = {"schedulerName": "shared"}
    profiles = [profile("mine", "a", shared, mine_age), profile("theirs", "b", shared, 2)]
    ours, others = judged(TIER_A, *profiles), judged(TIER_B, *profiles)
    assert ours.profiles[0].holds_name is holds
    assert others.profiles[0].holds_name is not holds
    assert ours.elsewhere == (set() if holds else {"shared"})


def test_plugin_configs_are_judged_alike_everywhere() -> None:
    """Every process finds the same of a PluginConfig, so that it does not matter whose status stands last."""
    refers = {"pluginConfigRefs": [{"name": "pack"}]}
    profiles = [profile("mine", "a", refers), profile("theirs", "b", refers)]
    found = [
        judged(selection, *profiles, configs=(plugin_config_manifest("pack"),)).plugin_configs
        for selection in (TIER_A, TIER_B)
    ]
    assert found[0] == found[1]
    assert found[0][0].referenced_by == ("mine", "theirs")


def test_whose_a_name_is() -> None:
    """Ours, another process's, or nobody's."""
    served = ServedProfiles(TIER_A)
    assert served.update(judged(TIER_A, profile("mine", "a"), profile("theirs", "b")))
    assert [served.serves(name) for name in ("mine", "theirs", "nobodys")] == [True, False, None]
    assert not served.update(judged(TIER_A, profile("theirs", "b")))
    assert served.serves("mine") is None


@pytest.mark.parametrize(
    ("selection", "later", "newcomer"),
    [
        pytest.param(TIER_A, profile("other", "a"), True, id="labelled ours"),
        pytest.param(TIER_A, profile("other", "b"), False, id="still theirs"),
        pytest.param(None, profile("other", "a"), False, id="all are ours"),
    ],
)
def test_a_profile_that_becomes_ours_is_noticed(
    selection: ProfileSelection | None, later: Manifest, newcomer: bool
) -> None:
    """Its past was kept by another process, and is read anew."""
    served = ServedProfiles(selection)
    served.update(judged(TIER_A, profile("mine", "a")))
    assert served.has_new_profiles([profile("mine", "a"), later]) is newcomer


def test_nothing_is_new_at_the_start() -> None:
    """What is kept was read before the first step."""
    assert not ServedProfiles(TIER_A).has_new_profiles([profile("mine", "a")])
