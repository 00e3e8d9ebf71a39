"""Matching of tolerations and taints."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.taints import Taint, Toleration, TolerationIndex, tolerated

TAINT = Taint("dedicated", "NoSchedule", "db")

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
