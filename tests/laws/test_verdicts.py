"""Law: ``bayplan validate``, the admission webhook and the operator find the same about a SchedulerProfile."""

from __future__ import annotations

from typing import Any

from bayplan.profiles.desired_profiles import PluginConfigValidation, desired_state
from bayplan.profiles.profile_rollout import ProfileRollout, ShadowRollout
from bayplan.profiles.profile_status import ProfileFindings
from bayplan.simulation.memory_cluster import offline_scheduler
from bayplan.validation.admission_review import AdmissionReview
from bayplan.validation.manifest_files import Manifest, Severity
from bayplan.validation.manifest_validation import ManifestValidation
from hypothesis import given, settings
from hypothesis import strategies as st
from yaml import MappingNode
from yaml.error import Mark

from tests.support.manifests import plugin_config_manifest, profile_manifest


def _name(entry: dict[str, Any]) -> str:
    return str(entry["name"])


NAMES = st.sampled_from(["NodeResourcesFit", "PrioritySort", "NodeName", "VolumeBinding", "Nope", "*", "EBSLimits"])
ENABLED = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"weight": st.integers(0, 2)}),
    max_size=2,
    unique_by=_name,
)
DISABLED = st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2, unique_by=_name)
SETS = st.fixed_dictionaries({}, optional={"enabled": ENABLED, "disabled": DISABLED})
POINTS = st.sampled_from(["multiPoint", "preFilter", "filter", "preScore", "score", "reserve", "preBind", "bind"])
STRATEGY = st.sampled_from([{}, {"scoringStrategy": {"type": "MostAllocated"}}, {"scoringStrategy": {"type": "Most"}}])
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "schedulerName": st.sampled_from(["x", "default-scheduler"]),
        "shadowOf": st.just("x"),
        "percentageOfNodesToScore": st.sampled_from([0, 100, 101]),
        "plugins": st.dictionaries(POINTS, SETS, max_size=3),
        "pluginConfig": st.lists(st.fixed_dictionaries({"name": NAMES, "args": STRATEGY}), max_size=2, unique_by=_name),
        "pluginConfigRefs": st.sampled_from([[], [{"name": "pack"}]]),
        "extenders": st.lists(
            st.fixed_dictionaries({"urlPrefix": st.sampled_from(["http://e.example.com", "e.example.com:80", ""])}),
            max_size=2,
        ),
    },
)
STORED = plugin_config_manifest("pack")
SCHEDULER = offline_scheduler()
REVIEW = AdmissionReview(allow_default_scheduler=False, selection=None)


def of_operator(profile: dict[str, Any]) -> ProfileFindings:
    """Return what the conditions of a profile are made from."""
    state = desired_state([profile], [STORED], PluginConfigValidation(SCHEDULER.registry))
    rollout = ProfileRollout(SCHEDULER, lambda _: ())
    live, shadows = rollout.apply(state.of_live_profiles()), ShadowRollout(SCHEDULER).apply(state.shadows)
    (applied,) = (*live, *shadows)
    rollout.apply(desired_state([], [STORED], PluginConfigValidation(SCHEDULER.registry)))
    return applied.findings


def of_validate(profile: dict[str, Any], severity: Severity) -> set[tuple[str, str]]:
    """Return the findings of ``bayplan validate`` about a profile, as paths and messages."""
    start = Mark("", 0, 0, 0, None, 0)
    manifests = [Manifest(body, "-", 1, MappingNode("", [], start, start)) for body in (STORED, profile)]
    found = ManifestValidation(manifests).findings
    about = [each for each in found if each.object == f"SchedulerProfile {profile['metadata']['name']}"]
    return {(each.path, each.message) for each in about if each.severity is severity}


@settings(max_examples=150)
@given(SPECS)
def test_one_verdict(spec: dict[str, Any]) -> None:
    """A spec has the same problems and the same warnings in the webhook, in ``bayplan validate`` and in conditions.

    ``bayplan validate`` reports in addition what the API server refuses, and the webhook warns of problems that depend
    on other objects.
    """
    profile = profile_manifest("a", spec, uid="1")
    operator = of_operator(profile)
    reviewed = REVIEW(profile, None, lambda: [STORED])
    texts = {" ".join(str(each).split()) for each in operator.problems}
    refused = {" ".join(str(each).split()) for each in reviewed.problems}
    assert refused <= texts <= refused | set(reviewed.warnings)
    problems = {(each.path, each.message) for each in operator.problems}
    assert problems <= of_validate(profile, Severity.ERROR)
    if operator.problems:
        return
    warnings = {(each.path, each.message) for each in operator.warnings}
    assert warnings == of_validate(profile, Severity.WARNING)
    assert {" ".join(str(each).split()) for each in operator.warnings} <= set(reviewed.warnings)
