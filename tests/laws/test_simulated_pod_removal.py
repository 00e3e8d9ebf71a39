"""The law of sums: a dry run on sums, where it applies, equals a dry run on the columns, to the bit."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.cycle.nominated_pod_filtering import filter_with_nominated_pods
from scheduler_core.cycle.simulated_pod_removal import NodeDryRun
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.in_tree import default_plugins
from scheduler_core.runtime.filtering import run_pre_filters
from tests.support.plain_profile import PlainNode, PlainPod
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import rig

NOMINATIONS = st.lists(st.tuples(pods("nominated"), st.integers(0, 5), st.integers(-1, 1)), max_size=6)
MOVES = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=12)


@given(cluster=CLUSTERS, template=pods("new"), nominations=NOMINATIONS, moves=MOVES)
def test_sums_say_what_the_columns_say(
    cluster: tuple[PlainNode, ...],
    template: PlainPod,
    nominations: list[tuple[PlainPod, int, int]],
    moves: list[tuple[bool, int]],
) -> None:
    """After any removals and restores, with any nominations, every row gets the same verdict."""
    made = rig(defaults=default_plugins())
    made.add(*(each.real() for each in cluster), *(other.real() for each in cluster for other in each.running_pods))
    nodes, (instance,), nominator = made.context.cache.columns, made.context.profiles, made.queue.nominator
    info, state = nodes.compile_pod(dataclasses.replace(template, ports=()).real()), CycleState()
    run_pre_filters(instance, state, info, nodes)
    for number, (other, where, priority) in enumerate(nominations):
        nominated = nodes.compile_pod(dataclasses.replace(other, name=f"nominated-{number}").real())
        nominated.priority = priority
        nominator.nominate(nominated, nodes.node_name(where % nodes.size))
    running = [pod for on_row in nodes.pods for pod in on_row.values()]
    rows = list(range(nodes.size))
    plain = NodeDryRun(instance, state, info, nodes, nominator)
    sums = NodeDryRun(instance, state, info, nodes, nominator).by_sums(rows)
    assert sums is not None, "a pod without ports, volumes and terms is judged by sums"
    away: set[int] = set()
    with plain:
        for is_removal, number in moves:
            if not running:
                break
            place = number % len(running)
            if is_removal is (place in away):
                continue
            # The sums know a pod by the row that it runs on, of which the other form takes it.
            if is_removal:
                sums.remove(running[place])
                plain.remove(running[place])
            else:
                plain.restore(running[place])
                sums.restore(running[place])
            away ^= {place}
            expected = plain.run_filters(np.array(rows, dtype=np.intp))
            assert sums.run_filters(np.array(rows, dtype=np.intp)).tolist() == expected.tolist()
    made.queue.close()


@given(cluster=CLUSTERS, template=pods("new"), nominations=NOMINATIONS)
def test_nominations_filtered_together_equal_each_alone(
    cluster: tuple[PlainNode, ...], template: PlainPod, nominations: list[tuple[PlainPod, int, int]]
) -> None:
    """Many nominated rows are filtered with sums, a few by adding pods to the columns."""
    made = rig(defaults=default_plugins())
    made.add(*(each.real() for each in cluster), *(other.real() for each in cluster for other in each.running_pods))
    nodes, (instance,), nominator = made.context.cache.columns, made.context.profiles, made.queue.nominator
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
    made.queue.close()
