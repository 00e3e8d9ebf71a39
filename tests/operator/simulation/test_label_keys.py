"""Tests of merging label keys into selectors."""

import pytest
from bayplan.simulation.admission import merge_label_keys

from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.pod import PodSpec, TopologySpreadConstraint
from tests.support.affinities import affinity_to, term

LABELS = {"app": "web", "pod-template-hash": "abc"}
APP = Requirement("app", "In", ("web",))
HASH = Requirement("pod-template-hash", "In", ("abc",))
NOT_HASH = Requirement("pod-template-hash", "NotIn", ("abc",))


@pytest.mark.parametrize(
    ("selector", "keys", "expected"),
    [
        pytest.param(LabelSelector(), ("pod-template-hash",), LabelSelector({}, (HASH,)), id="key"),
        pytest.param(
            LabelSelector({}, (APP,)),
            ("pod-template-hash",),
            LabelSelector({}, (APP, HASH)),
            id="key after other requirements",
        ),
        pytest.param(LabelSelector(), ("missing",), LabelSelector(), id="key that the pod does not have"),
        pytest.param(None, ("pod-template-hash",), None, id="no selector"),
        pytest.param(
            LabelSelector({}, (HASH,)), ("pod-template-hash",), LabelSelector({}, (HASH,)), id="already merged"
        ),
        pytest.param(LabelSelector(), (), LabelSelector(), id="no keys"),
    ],
)
def test_spread_constraints(
    selector: LabelSelector | None, keys: tuple[str, ...], expected: LabelSelector | None
) -> None:
    """The label keys of a spread constraint restrict its selector to pods with the same values."""
    constraint = TopologySpreadConstraint(label_selector=selector, match_label_keys=keys)
    (merged,) = merge_label_keys(PodSpec(topology_spread_constraints=(constraint,)), LABELS).topology_spread_constraints
    assert merged.label_selector == expected


def test_affinity_terms() -> None:
    """Label keys are merged into required and preferred terms, mismatchLabelKeys with operator NotIn."""

    def terms(same: LabelSelector, other: LabelSelector) -> PodAffinity:
        required = PodAffinityTerm(label_selector=same, match_label_keys=("pod-template-hash",))
        preferred = PodAffinityTerm(label_selector=other, mismatch_label_keys=("pod-template-hash",))
        found = affinity_to(required, preferred=[(1, preferred)]).pod_affinity
        assert found is not None
        return found

    given = terms(LabelSelector(), LabelSelector())
    merged = merge_label_keys(PodSpec(affinity=Affinity(pod_affinity=given, pod_anti_affinity=given)), LABELS).affinity
    expected = terms(LabelSelector({}, (HASH,)), LabelSelector({}, (NOT_HASH,)))
    assert merged == Affinity(pod_affinity=expected, pod_anti_affinity=expected)


def test_a_pod_without_keys_is_unchanged() -> None:
    """A pod spec without label keys is returned as the same object."""
    spec = PodSpec(affinity=affinity_to(term(LabelSelector())))
    assert merge_label_keys(spec, LABELS) is spec
