"""Selection of the least harmful of several sets of victims."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.plugins.default_preemption.candidate_nodes import VictimSets, least_harmful


class Victims(NamedTuple):
    violations: int
    pods: list[tuple[int, int]]
    """Priority and start time of each victim."""


def chosen(*candidates: Victims) -> int:
    sizes = [len(candidate.pods) for candidate in candidates]
    pods = [pod for candidate in candidates for pod in candidate.pods]
    return least_harmful(
        VictimSets(
            np.cumsum([0, *sizes[:-1]], dtype=np.int64),
            np.array([priority for priority, _ in pods], dtype=np.int64),
            np.array([start for _, start in pods], dtype=np.int64),
            np.array([candidate.violations for candidate in candidates], dtype=np.int64),
        )
    )


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        pytest.param(Victims(1, [(0, 9)]), Victims(0, [(9, 0), (9, 0)]), id="violations-first"),
        pytest.param(Victims(0, [(5, 9)]), Victims(0, [(4, 0), (4, 0), (4, 0)]), id="then-highest-priority"),
        pytest.param(Victims(0, [(5, 9), (1, 9)]), Victims(0, [(5, 0), (0, 0)]), id="then-sum"),
        pytest.param(Victims(0, [(-5, 9), (-6, 9)]), Victims(0, [(-5, 0)]), id="more-of-negative-priority-is-worse"),
        pytest.param(
            Victims(0, [(5, 1), (0, 9)]), Victims(0, [(5, 2), (0, 0)]), id="then-later-start-of-the-highest-priority"
        ),
        pytest.param(Victims(0, [(5, 1), (5, 9)]), Victims(0, [(5, 2), (5, 2)]), id="the-longest-running-counts"),
    ],
)
def test_order_of_criteria(worse: Victims, better: Victims) -> None:
    """Each criterion decides only between candidates that are equal in all previous ones, in any order."""
    assert chosen(worse, better) == 1
    assert chosen(better, worse) == 0


def test_the_first_of_equals() -> None:
    """The first of several equal candidates is selected."""
    assert chosen(Victims(0, [(1, 1)]), Victims(0, [(0, 1)]), Victims(0, [(0, 1)])) == 1


def test_fewest_of_equal_sums() -> None:
    """If sums are equal because pods of the lowest priority add 0, the set with fewer victims is selected."""
    lowest = -(2**31)
    assert chosen(Victims(0, [(5, 0), (lowest, 0)]), Victims(0, [(5, 0)])) == 1


_CANDIDATES = st.builds(
    Victims,
    st.integers(0, 2),
    st.lists(st.tuples(st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]), st.integers(0, 3)), min_size=1, max_size=4),
)


@given(st.lists(_CANDIDATES, min_size=1, max_size=6))
def test_equals_the_plain_form(candidates: list[Victims]) -> None:
    """The selected candidate is the first with the minimal cost."""

    def cost(candidate: Victims) -> tuple[int, ...]:
        highest = max(priority for priority, _ in candidate.pods)
        total = sum(priority + 2**31 for priority, _ in candidate.pods)
        longest = min(start for priority, start in candidate.pods if priority == highest)
        return candidate.violations, highest, total, len(candidate.pods), -longest

    costs = [cost(candidate) for candidate in candidates]
    assert chosen(*candidates) == costs.index(min(costs))
