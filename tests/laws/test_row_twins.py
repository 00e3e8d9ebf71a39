"""Laws of results for all nodes at once.

Each row equals the row that is computed with Python numbers exactly. The default profile equals a plain implementation
for one node at a time that shares no code with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import score_feasible
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, ScorePlugin
from scheduler_core.kernels.go_arithmetic import LARGEST_EXACT_WHOLE
from scheduler_core.kernels.resource_scores import (
    ResourceUse,
    RowUse,
    balanced_allocation,
    balanced_allocation_row,
    least_allocated,
    least_allocated_row,
    most_allocated,
    most_allocated_row,
)
from scheduler_core.model.pod_requests import LARGEST_CAPACITY, LARGEST_REQUEST
from scheduler_core.runtime.filtering import run_pre_filters
from scheduler_core.runtime.scoring import Scoring, run_pre_scores
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.plain_profile import PLUGINS, PlainNode, PlainPod, real_objects, totals, verdict
from tests.support.presence import present
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import default_rig, plugin_set, rig
from tests.support.tables import table

EDGES = [0, 1, 3, 99, 100, 101, 4000, LARGEST_EXACT_WHOLE - 1, LARGEST_EXACT_WHOLE, 2**57, LARGEST_CAPACITY]
CAPACITIES = st.sampled_from([*EDGES, LARGEST_EXACT_WHOLE + 1]) | st.integers(0, 2**46)
AMOUNTS = st.sampled_from([*EDGES, LARGEST_REQUEST]) | st.integers(0, 2**46)
USES = st.lists(st.tuples(CAPACITIES, AMOUNTS, AMOUNTS, st.integers(1, 100)), min_size=1, max_size=3)
Arrays = Callable[[Sequence[ResourceUse]], np.ndarray[tuple[int], np.dtype[np.int64]]]
Row = Callable[[Sequence[RowUse]], int | None]


@table(
    "of_arrays, of_row",
    ("least-allocated", least_allocated, least_allocated_row),
    ("most-allocated", most_allocated, most_allocated_row),
    ("balanced-allocation", balanced_allocation, balanced_allocation_row),
)
@given(uses=USES)
def test_formulas(of_arrays: Arrays, of_row: Row, uses: list[RowUse]) -> None:
    """If the formula of a row returns a number, the formula of arrays returns the same number."""
    found = of_row(uses)
    if found is not None:
        arrays = [ResourceUse(np.array([use[0]]), np.array([use[1]]), use[2], use[3]) for use in uses]
        assert found == of_arrays(arrays).item(0)


@given(cluster=CLUSTERS, template=pods("new"))
def test_plugins(cluster: tuple[PlainNode, ...], template: PlainPod) -> None:
    """Every default plugin returns the same results for single rows as for all rows at once."""
    made = default_rig(*real_objects(cluster))
    nodes, (instance,) = made.columns, made.context.profiles
    info, state = nodes.compile_pod(template.real()), CycleState()
    run_pre_filters(instance, state, info, nodes)
    run_pre_scores(instance, Scoring(state, info, nodes, ALL_ROWS))
    for plugin in instance.filters:
        if isinstance(plugin, FilterPlugin) and plugin.name not in state.skip_filter:
            codes = plugin.filter(state, info, nodes, ALL_ROWS)
            codes_by_row = [plugin.filter_row(state, info, nodes, row) for row in range(nodes.size)]
            assert codes_by_row == ([0] * nodes.size if codes is None else codes.tolist())
    for scorer, _ in instance.scores:
        if isinstance(scorer, ScorePlugin) and scorer.name not in state.skip_score:
            scored = [scorer.score_row(state, info, nodes, row) for row in range(nodes.size)]
            assert scored == scorer.score(state, info, nodes, ALL_ROWS).tolist()


# -- the whole profile -------------------------------------------------------------------------------------------------


@given(cluster=CLUSTERS, wanted=pods("wanted"))
def test_the_whole_profile(cluster: tuple[PlainNode, ...], wanted: PlainPod) -> None:
    """The rejecting plugin and reasons of each node, and the total scores of feasible nodes, are equal."""
    made = rig(defaults=Plugins(multi_point=plugin_set(*PLUGINS)))
    made.add(*real_objects(cluster), wanted.real())
    instance = present(made.context.profiles.get("default-scheduler"))
    queued = made.pop()
    attempt = Attempt(queued, queued.info, instance, made.clock.now())

    found = made.scheduler.cycles.selection.find_feasible(attempt)

    statuses = [found.diagnosis.status_of(row) for row in range(len(cluster))]
    assert [(status.plugin, status.reasons) for status in statuses] == [verdict(wanted, node) for node in cluster]
    feasible = [node for node in cluster if verdict(wanted, node) == ("", ())]
    assert [made.columns.node_name(int(row)) for row in found.rows] == [node.name for node in feasible]
    if feasible:
        table = score_feasible(made.columns, attempt, found.rows)
        assert table.totals.tolist() == totals(wanted, feasible, cluster)
