"""Matching of tolerations and taints."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.taints import Taint, Toleration, TolerationIndex, tolerated
from tests.support.tables import table

TAINT = Taint("dedicated", "NoSchedule", "db")


@table(
    "toleration, covers",
    ("equal", Toleration("dedicated", "Equal", "db", "NoSchedule"), True),
    ("operator-defaults-to-equal", Toleration("dedicated", "", "db", "NoSchedule"), True),
    ("every-effect", Toleration("dedicated", "Equal", "db"), True),
    ("another-effect", Toleration("dedicated", "Equal", "db", "NoExecute"), False),
    ("another-value", Toleration("dedicated", "Equal", "web"), False),
    ("the-empty-value", Toleration("dedicated", "Equal"), False),
    ("another-key", Toleration("other", "Equal", "db"), False),
    ("exists", Toleration("dedicated", "Exists"), True),
    ("everything", Toleration("", "Exists"), True),
    ("everything-of-another-effect", Toleration("", "Exists", "", "NoExecute"), False),
    ("any-key-of-that-value", Toleration("", "Equal", "db"), True),
    ("gt-is-behind-a-gate", Toleration("dedicated", "Gt", "1"), False),
    ("lt-is-behind-a-gate", Toleration("dedicated", "Lt", "1"), False),
    ("unknown-operator", Toleration("dedicated", "exists"), False),
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
