"""Law: the admission webhook refuses a new object with the problems that its condition would have."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from bayplan.profiles.desired_profiles import PluginConfigValidation, desired_state
from bayplan.profiles.profile_rollout import ProfileRollout
from bayplan.resources.missing_references import missing_profiles
from bayplan.resources.object_store import Body
from bayplan.settings.profile_selection import ProfileSelection
from bayplan.simulation.memory_cluster import offline_scheduler
from bayplan.validation import admission_review
from bayplan.validation.admission_review import AdmissionReview
from hypothesis import given

from scheduler_core.errors import Problem
from tests.operator.validation.test_validate import SPECS
from tests.support.invalid_manifests import INVALID_MANIFESTS, InvalidManifest
from tests.support.manifests import plugin_config_manifest, profile_manifest
from tests.support.tables import table

Manifest = dict[str, Any]
REVIEW = AdmissionReview(allow_default_scheduler=False, selection=None)
OF_TIER_A = AdmissionReview(allow_default_scheduler=False, selection=ProfileSelection("tier=a"))
WRONG_ARGS = {"scoringStrategy": {"type": "Random"}}
TYPO = {"plugins": {"score": {"enabled": [{"name": "NodeResourceFit"}]}}}
TYPO_PATH = "spec.plugins.score.enabled[0].name"


def reviewed(body: Body, old: Body | None = None, stored: Sequence[Body] = (), review: AdmissionReview = REVIEW) -> Any:
    return review(body, old, lambda: stored)


def paths(problems: Sequence[Problem]) -> list[str]:
    return [problem.path for problem in problems]


def condition_problems(profile: Manifest, plugin_configs: Sequence[Manifest] = ()) -> tuple[Problem, ...]:
    """Return the problems in the condition Accepted of a profile."""
    scheduler = offline_scheduler()
    state = desired_state([profile], plugin_configs, PluginConfigValidation(scheduler.registry))
    (applied,) = ProfileRollout(scheduler, lambda _: ()).apply(state)
    return applied.findings.problems


@given(SPECS)
def test_the_webhook_refuses_what_the_condition_would_reject(spec: Manifest) -> None:
    """A new profile is refused with exactly the problems of the condition Accepted."""
    profile = profile_manifest("a", spec, uid="1")
    assert set(reviewed(profile).problems) == set(condition_problems(profile))


def test_a_group_that_names_what_does_not_exist_is_admitted_with_warnings() -> None:
    """Names in a PodGroup that do not exist are warnings, and are looked up only if the group is valid."""
    group = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "a", "namespace": "ml"}}
    missing = [Problem("spec.topology.key", 'no node has the label "zone"')]
    found = REVIEW({**group, "spec": {"minMember": 2}}, None, list, lambda _: missing)
    assert (found.problems, found.warnings) == ((), ('spec.topology.key: no node has the label "zone"',))
    found = REVIEW({**group, "spec": {"minMember": 0}}, None, list, lambda _: missing)
    assert (paths(found.problems), found.warnings) == (["spec.minMember"], ())


def test_a_plan_that_names_an_unknown_profile_is_admitted_with_a_warning() -> None:
    """An invalid plan is refused with the field, and unknown profiles are warnings that name the entry."""
    plan = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "RebalancePlan", "metadata": {"name": "a"}}
    stored = [profile_manifest("batch", {"schedulerName": ""}), profile_manifest("web", {"schedulerName": "web-pods"})]

    def missing(resource: Any) -> list[Problem]:
        return list(missing_profiles(resource.spec.scope.profiles, stored))

    spec = {"objective": "Consolidate", "scope": {"profiles": ["batch", "web-pod", "web"]}}
    found = REVIEW({**plan, "spec": spec}, None, list, missing)
    assert found.problems == ()
    (first, second) = found.warnings
    assert first.startswith(
        'spec.scope.profiles[1]: no profile has the schedulerName "web-pod" (did you mean "web-pods"?)'
    )
    assert second == 'spec.scope.profiles[2]: no profile has the schedulerName "web"; it selects no pods'
    found = REVIEW({**plan, "spec": {"objective": "Drain", "budget": {"moves": 0}}}, None, list, missing)
    assert (set(paths(found.problems)), found.warnings) == ({"spec.drain", "spec.budget.moves"}, ())


@pytest.mark.parametrize("refused", INVALID_MANIFESTS)
def test_invalid_manifests_are_refused(refused: InvalidManifest) -> None:
    """The review of an invalid manifest, should its definition admit it, names the field of the model."""
    found = paths(reviewed(refused.manifest()).problems)
    for path in refused.model or ():
        # Without a spec all defaults apply; only the definition requires one.
        assert refused.spec is None or any(each == path or each.startswith(f"{path}.") for each in found), found


REFERENCES = {"pluginConfigRefs": [{"name": "pack"}]}
INLINE = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {}}]}


@table(
    "spec, stored, problems, warnings",
    ("valid", REFERENCES, [plugin_config_manifest()], [], 0),
    ("not applied yet", REFERENCES, [], [], 1),
    ("invalid", REFERENCES, [plugin_config_manifest(args=WRONG_ARGS)], [], 1),
    ("configures a plugin twice", REFERENCES | INLINE, [plugin_config_manifest()], [], 1),
    ("own problem", REFERENCES | TYPO, [plugin_config_manifest()], [TYPO_PATH], 0),
    ("no effect", {"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}, [], [], 1),
)
def test_what_depends_on_other_objects_is_a_warning(
    spec: Manifest, stored: Sequence[Manifest], problems: list[str], warnings: int
) -> None:
    """A problem of another object warns and does not refuse, because tools apply objects in any order."""
    found = reviewed(profile_manifest("a", spec), stored=stored)
    assert (paths(found.problems), len(found.warnings)) == (problems, warnings)


@table(
    "old, new, is_refused",
    ("created", None, TYPO, True),
    ("changed", {}, TYPO, True),
    ("unchanged", TYPO, TYPO, False),
    ("corrected", TYPO, {}, False),
    ("equal in Python alone", {"podMaxBackoffSeconds": 1}, {"podMaxBackoffSeconds": True}, True),
)
def test_an_unchanged_spec_is_not_refused(old: Manifest | None, new: Manifest, *, is_refused: bool) -> None:
    """Labels and finalizers of an object that was stored while the webhook was away can be changed."""
    before = None if old is None else {**profile_manifest("a"), "spec": old}
    after = {**profile_manifest("a", labels={"x": "y"}), "spec": new}
    assert bool(reviewed(after, before).problems) == is_refused


@table(
    "body, is_refused",
    ("own profile", profile_manifest("a", TYPO, labels={"tier": "a"}), True),
    ("profile of another process", profile_manifest("a", TYPO, labels={"tier": "b"}), False),
    ("plugin of another process", plugin_config_manifest(plugin="Nope"), False),
    ("wrong args", plugin_config_manifest(args=WRONG_ARGS), True),
)
def test_what_other_processes_serve_is_not_refused(body: Manifest, *, is_refused: bool) -> None:
    """A process that serves a selection of profiles does not refuse what only others can validate."""
    assert bool(reviewed(body, review=OF_TIER_A).problems) == is_refused


def test_reviews_leave_time_for_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A review waits until two thirds of the time since the last one began were left for other work."""
    now, slept = [100.0], list[float]()

    def monotonic() -> float:
        now[0] += 0.5
        return now[0]

    monkeypatch.setattr(admission_review, "time", SimpleNamespace(monotonic=monotonic, sleep=slept.append))
    review = AdmissionReview(allow_default_scheduler=False, selection=None)
    for _ in range(2):
        reviewed(plugin_config_manifest(), review=review)
    # The first review took from 101.0 to 101.5, and the second one begins at 102.0.
    assert slept == [0.0, pytest.approx(101.0 + 3 * 0.5 - 102.0)]
