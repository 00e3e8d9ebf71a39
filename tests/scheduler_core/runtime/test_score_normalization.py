"""Score normalization by the highest score."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.runtime.scoring import normalize_max, normalize_reverse_max


def _model(raw: list[int], *, reverse: bool) -> list[int]:
    """Model of the normalization, one score at a time."""
    highest = 0
    for score in raw:
        highest = max(highest, score)
    if highest == 0:
        return [100] * len(raw) if reverse else raw
    scaled = [abs(100 * score) // highest * (1 if score >= 0 else -1) for score in raw]
    return [100 - score for score in scaled] if reverse else scaled


@pytest.mark.parametrize(
    ("raw", "scaled", "reversed_"),
    [
        pytest.param([1, 2, 4], [25, 50, 100], [75, 50, 0], id="scaled to the highest"),
        pytest.param([1, 3], [33, 100], [67, 0], id="fractions are truncated before reversal"),
        pytest.param([0, 0], [0, 0], [100, 100], id="all 0"),
        pytest.param([-3, -1], [-3, -1], [100, 100], id="all below 0"),
        pytest.param([-1, 3], [-33, 100], [133, 0], id="below and above 0"),
        pytest.param([], [], [], id="no rows"),
    ],
)
def test_normalized(raw: list[int], scaled: list[int], reversed_: list[int]) -> None:
    """Scores are scaled to 100 by the highest score, in both directions."""
    scores = np.array(raw, dtype=np.int64)
    assert normalize_max(scores).tolist() == scaled
    assert normalize_reverse_max(scores).tolist() == reversed_


@given(st.lists(st.integers(-(10**15), 10**15) | st.sampled_from([2**53, 2**57, 2**62, 2**63 - 1]), max_size=8))
def test_normalization_equals_the_model(raw: list[int]) -> None:
    """Normalization of an array equals the model, and leaves its argument unchanged."""
    scores = np.array(raw, dtype=np.int64)
    assert normalize_max(scores).tolist() == _model(raw, reverse=False)
    assert normalize_reverse_max(scores).tolist() == _model(raw, reverse=True)
    assert scores.tolist() == raw
