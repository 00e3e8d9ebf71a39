"""Matching of tolerations and taints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.taints import Taint, Toleration, TolerationIndex, tolerated

TAINT = Taint("dedicated", "NoSchedule", "db")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        pytest.param(Toleration("dedicated", "Equal", "db", "NoSchedule"), True, id="equal"),
        pytest.param(Toleration("dedicated", "", "db", "NoSchedule"), True, id="operator-defaults-to-equal"),
        pytest.param(Toleration("dedicated", "Equal", "db"), True, id="every-effect"),
        pytest.param(Toleration("dedicated", "Equal", "db", "NoExecute"), False, id="another-effect"),
        pytest.param(Toleration("dedicated", "Equal", "web"), False, id="another-value"),
        pytest.param(Toleration("dedicated", "Equal"), False, id="the-empty-value"),
        pytest.param(Toleration("other", "Equal", "db"), False, id="another-key"),
        pytest.param(Toleration("dedicated", "Exists"), True, id="exists"),
        pytest.param(Toleration("", "Exists"), True, id="everything"),
        pytest.param(Toleration("", "Exists", "", "NoExecute"), False, id="everything-of-another-effect"),
        pytest.param(Toleration("", "Equal", "db"), True, id="any-key-of-that-value"),
        pytest.param(Toleration("dedicated", "Gt", "1"), False, id="gt-is-behind-a-gate"),
        pytest.param(Toleration("dedicated", "Lt", "1"), False, id="lt-is-behind-a-gate"),
        pytest.param(Toleration("dedicated", "exists"), False, id="unknown-operator"),
    ],
)
def test_tolerates(toleration: Toleration, covers: bool) -> None:
    """A toleration's key, value and effect must equal the taint's if they are set."""
    assert toleration.tolerates(TAINT) is covers
    assert tolerated(TAINT, [toleration]) is covers


def test_one_of_several_is_enough() -> None:
    """A taint is tolerated if one of the tolerations matches it."""
    wrong, right = Toleration("other", "Exists"), Toleration("dedicated", "Exists")
    assert tolerated(TAINT, [wrong, right])
    assert not tolerated(TAINT, [wrong, wrong])
    assert not tolerated(TAINT, [])


_TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", "dedicated", "other"]),
    operator=st.sampled_from(["", "Equal", "Exists", "Lt"]),
    value=st.sampled_from(["", "db", "web"]),
    effect=st.sampled_from(["", "NoSchedule", "NoExecute"]),
)


@given(st.lists(_TOLERATIONS, max_size=3), _TOLERATIONS)
def test_an_additional_toleration_never_rejects(tolerations: list[Toleration], additional: Toleration) -> None:
    """A tolerated taint stays tolerated when a toleration is added."""
    assert tolerated(TAINT, [*tolerations, additional]) >= tolerated(TAINT, tolerations)


_TAINTS = st.builds(
    Taint,
    key=st.sampled_from(["", "dedicated", "other"]),
    effect=st.sampled_from(["", "NoSchedule", "NoExecute"]),
    value=st.sampled_from(["", "db", "web"]),
)


@given(st.lists(_TOLERATIONS, max_size=4), _TAINTS)
def test_the_index_matches_as_the_tolerations_do(tolerations: list[Toleration], taint: Taint) -> None:
    """The index of a list of tolerations matches the same taints."""
    assert TolerationIndex(tolerations).tolerates(taint) is tolerated(taint, tolerations)
