"""Scoring: raw, normalized and weighted scores, and their sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Normalization
from scheduler_core.framework.status import unschedulable
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.scoring import Scoring, normalize_max, normalize_reverse_max, run_pre_scores, run_scores
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import plugin_set, rig
from tests.support.tables import table


def scores(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(numbers, dtype=np.int64)


def bench(journal: Journal, normalization: Normalization = Normalization.OWN) -> tuple[Scoring, FrameworkInstance]:
    classes = [recorder(name, journal) for name in ("A", "B")]
    for each in classes:
        each.normalization = normalization
    made = rig(classes, defaults=Plugins(multi_point=plugin_set("A=3", "B", "PrioritySort", "DefaultBinder")))
    made.add(*(node(f"n{number}") for number in range(3)))
    nodes = made.columns
    instance = present(made.context.profiles.get("default-scheduler"))
    return Scoring(CycleState(), nodes.compile_pod(pod()), nodes, ALL_ROWS), instance


@table(
    "normalization, raw, normalized",
    ("none", Normalization.NONE, [10, 0, 100], [10, 0, 100]),
    ("max", Normalization.MAX, [1, 0, 3], [33, 0, 100]),
    ("reverse-max", Normalization.REVERSE_MAX, [1, 0, 3], [67, 100, 0]),
    ("reverse-max-of-0", Normalization.REVERSE_MAX, [0, 0, 0], [100, 100, 100]),
    ("own", Normalization.OWN, [1, 2, 3], [7, 8, 9]),
)
def test_parts_and_total(normalization: Normalization, raw: list[int], normalized: list[int]) -> None:
    """Normalized scores are multiplied by the weights and added, and the parts are returned if requested."""
    journal = Journal(
        results={"A.score": scores(*raw), "A.normalizeScore": scores(7, 8, 9), "B.score": scores(0, 0, 0)}
    )
    journal.results["B.normalizeScore"] = scores(1, 1, 1)
    scoring, instance = bench(journal, normalization)
    table = run_scores(instance, scoring, keep_parts=True)
    assert table.parts["A"].raw.tolist() == raw
    assert table.parts["A"].normalized.tolist() == normalized
    assert table.parts["A"].weighted.tolist() == [3 * score for score in normalized]
    assert table.totals.tolist() == (table.parts["A"].weighted + table.parts["B"].weighted).tolist()


def test_parts_are_optional() -> None:
    """Parts are not returned by default, because a cycle needs only the totals."""
    scoring, instance = bench(Journal())
    assert run_scores(instance, scoring).parts == {}


@pytest.mark.parametrize("worst", [-1, 101])
def test_a_normalized_score_out_of_range_names_the_node(worst: int) -> None:
    """A normalized score out of range raises an error with the plugin and the node."""
    scoring, instance = bench(Journal(results={"B.score": scores(0, worst, 0)}))
    with pytest.raises(
        PluginError, match=f'running Score plugins: plugin "B" failed with: returned {worst} for node n1'
    ):
        run_scores(instance, scoring)


def test_pre_score_that_rejects_is_an_error() -> None:
    """A PreScore plugin that rejects is an error, because only Success and Skip are valid."""
    scoring, instance = bench(Journal(results={"A.preScore": unschedulable("no")}))
    with pytest.raises(PluginError, match='running PreScore plugin "A": no'):
        run_pre_scores(instance, scoring)


def _model(raw: list[int], *, reverse: bool) -> list[int]:
    """Model of the normalization, one score at a time."""
    highest = 0
    for score in raw:
        highest = max(highest, score)
    if highest == 0:
        return [100] * len(raw) if reverse else raw
    scaled = [abs(100 * score) // highest * (1 if score >= 0 else -1) for score in raw]
    return [100 - score for score in scaled] if reverse else scaled


@table(
    "raw, scaled, reversed_",
    ("scaled to the highest", [1, 2, 4], [25, 50, 100], [75, 50, 0]),
    ("fractions are truncated before reversal", [1, 3], [33, 100], [67, 0]),
    ("all 0", [0, 0], [0, 0], [100, 100]),
    ("all below 0", [-3, -1], [-3, -1], [100, 100]),
    ("below and above 0", [-1, 3], [-33, 100], [133, 0]),
    ("no rows", [], [], []),
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
