"""Index of selectors by a label pair that they require."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.selectors import MATCH_EVERYTHING, MATCH_NOTHING, LabelMatcher, compile_label_selector
from scheduler_core.snapshot.indexes.selector_index import LabelBuckets, required_pair


def matcher(*expressions: Requirement, **labels: str) -> LabelMatcher:
    """Return a compiled selector."""
    return compile_label_selector(LabelSelector(labels, expressions))


@pytest.mark.parametrize(
    ("selector", "pair"),
    [
        pytest.param(MATCH_EVERYTHING, None, id="everything"),
        pytest.param(MATCH_NOTHING, None, id="nothing"),
        pytest.param(matcher(app="web"), ("app", "web"), id="a-pair"),
        pytest.param(matcher(Requirement("app", "In", ("web",))), ("app", "web"), id="one-value"),
        pytest.param(matcher(Requirement("app", "In", ("web", "db"))), None, id="two-values"),
        pytest.param(matcher(Requirement("app", "NotIn", ("web",))), None, id="not-in"),
        pytest.param(matcher(Requirement("a", "Exists"), tier="x"), ("tier", "x"), id="the-first-single-value"),
    ],
)
def test_required_pair(selector: LabelMatcher, pair: tuple[str, str] | None) -> None:
    """required_pair() returns the first label with a single required value."""
    assert required_pair(selector) == pair


_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))
_SELECTORS = st.builds(
    lambda labels, operator, key: matcher(*([Requirement(key, operator)] if operator else []), **labels),
    _LABELS,
    st.sampled_from(["", "Exists", "DoesNotExist"]),
    st.sampled_from("ab"),
) | st.just(MATCH_NOTHING)
_STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12)


@given(selectors=st.lists(_SELECTORS, min_size=4, max_size=4), steps=_STEPS, labels=_LABELS)
def test_candidates_include_all_matches(
    selectors: list[LabelMatcher], steps: list[tuple[bool, int]], labels: dict[str, str]
) -> None:
    """Candidates are distinct, include every stored selector that matches, and include nothing that was removed."""
    buckets: LabelBuckets[int] = LabelBuckets()
    stored: set[int] = set()
    for adds, item in steps:
        if adds:
            buckets.add(selectors[item], item)
            stored.add(item)
        else:
            buckets.remove(selectors[item], item)
            stored.discard(item)
    found = list(buckets.candidates(labels))
    assert len(found) == len(set(found))
    assert {item for item in stored if selectors[item].matches(labels)} <= set(found) <= stored


def test_candidates_exclude_selectors_with_other_pairs() -> None:
    """Selectors that require another value of the label are not candidates."""
    buckets: LabelBuckets[str] = LabelBuckets()
    buckets.add(matcher(app="web"), "web")
    buckets.add(matcher(app="db"), "db")
    buckets.add(MATCH_EVERYTHING, "all")
    assert list(buckets.candidates({"app": "db"})) == ["all", "db"]
