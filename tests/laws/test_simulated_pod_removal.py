"""Law of dry-run sums: a dry run on sums equals a dry run on the columns exactly."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cycle.simulated_pod_removal import NodeDryRun
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.runtime.filtering import filter_with_nominated_pods, run_pre_filters
from scheduler_core.step_counter import StepCounter
from tests.support.plain_profile import PlainNode, PlainPod, real_objects
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import default_rig

NOMINATIONS = st.lists(st.tuples(pods("nominated"), st.integers(0, 5), st.integers(-1, 1)), max_size=6)
CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=12)


@given(cluster=CLUSTERS, template=pods("new"), nominations=NOMINATIONS, changes=CHANGES)
def test_sums_equal_the_columns(
    cluster: tuple[PlainNode, ...],
    template: PlainPod,
    nominations: list[tuple[PlainPod, int, int]],
    changes: list[tuple[bool, int]],
) -> None:
    """After any removals and restores, with any nominations, the filter results of all rows are equal."""
    made = default_rig(*real_objects(cluster))
    nodes, (instance,), nominator = made.columns, made.context.profiles, made.queue.nominator
    info, state = nodes.compile_pod(dataclasses.replace(template, ports=()).real()), CycleState()
    run_pre_filters(instance, state, info, nodes)
    for number, (other, where, priority) in enumerate(nominations):
        nominated = nodes.compile_pod(dataclasses.replace(other, name=f"nominated-{number}").real())
        nominated.priority = priority
        nominator.nominate(nominated, nodes.node_name(where % nodes.size))
    running = [pod for on_row in nodes.pods for pod in on_row.values()]
    rows = list(range(nodes.size))
    plain = NodeDryRun(instance, state, info, nodes, nominator, steps=StepCounter())
    sums = NodeDryRun(instance, state, info, nodes, nominator, steps=StepCounter()).by_sums(rows)
    assert sums is not None, "a pod without ports, volumes and terms is filtered with sums"
    removed: set[int] = set()
    with plain:
        for is_removal, number in changes:
            if not running:
                break
            place = number % len(running)
            if is_removal is (place in removed):
                continue
            # The sums find a pod by its row, so they remove it before the columns do, and restore it after.
            if is_removal:
                sums.remove(running[place])
                plain.remove(running[place])
            else:
                plain.restore(running[place])
                sums.restore(running[place])
            removed ^= {place}
            expected = plain.run_filters(np.array(rows, dtype=np.intp))
            assert sums.run_filters(np.array(rows, dtype=np.intp)).tolist() == expected.tolist()


@given(cluster=CLUSTERS, template=pods("new"), nominations=NOMINATIONS)
def test_nominations_filtered_together_equal_each_alone(
    cluster: tuple[PlainNode, ...], template: PlainPod, nominations: list[tuple[PlainPod, int, int]]
) -> None:
    """Filtering all nominated rows at once equals filtering each row alone."""
    made = default_rig(*real_objects(cluster))
    nodes, (instance,), nominator = made.columns, made.context.profiles, made.queue.nominator
    info, state = nodes.compile_pod(template.real()), CycleState()
    run_pre_filters(instance, state, info, nodes)
    for number, (other, where, priority) in enumerate(nominations):
        nominated = nodes.compile_pod(dataclasses.replace(other, name=f"nominated-{number}").real())
        nominated.priority = priority
        nominator.nominate(nominated, nodes.node_name(where % nodes.size))
    together = filter_with_nominated_pods(instance, state, info, nodes, nominator)
    alone: dict[int, int] = {}
    for row in range(nodes.size):
        alone |= filter_with_nominated_pods(instance, state, info, nodes, nominator, among={row})
    assert together == alone
