"""Law of permutation: the order in which nodes were added changes no decision."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_set_types import Plugins
from tests.support.plain_profile import PLUGINS, PlainNode, PlainPod
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import plugin_set, rig

ARRIVALS = st.integers(1, 5).flatmap(lambda count: st.tuples(*(pods(f"p{number}") for number in range(count))))


def decisions(
    cluster: list[PlainNode], arrivals: tuple[PlainPod, ...], extra: bool
) -> tuple[dict[str, str], list[str]]:
    """Return the nodes of scheduled pods, and the messages of the others."""
    made = rig(defaults=Plugins(multi_point=plugin_set(*PLUGINS)))
    if extra:
        # A deleted node leaves a free row.
        deleted = PlainNode("deleted", 100, 100, 1).real()
        made.add(deleted)
        made.scheduler.feed.node_deleted(deleted)
    made.add(*(node.real() for node in cluster))
    made.add(*(other.real() for node in sorted(cluster, key=lambda node: node.name) for other in node.running_pods))
    placed: dict[str, str] = {}
    for each in arrivals:
        made.add(each.real())
        attempt = made.decide()
        if attempt is not None:
            placed[each.name] = attempt.node_name
    made.queue.close()
    return placed, [event.note for event in made.writer.events]


@given(cluster=CLUSTERS, arrivals=ARRIVALS, data=st.data())
def test_the_order_of_nodes_changes_no_decision(
    cluster: tuple[PlainNode, ...], arrivals: tuple[PlainPod, ...], data: st.DataObject
) -> None:
    """Nodes and messages are equal for any order of nodes, also if rows were freed and reused.

    Each image has the same size on all nodes, because kube-scheduler uses the size on the node that was added first.
    """
    equal = [replace(node, images=tuple((name, 500) for name, _ in node.images)) for node in cluster]
    shuffled = data.draw(st.permutations(equal))
    assert decisions(equal, arrivals, extra=False) == decisions(shuffled, arrivals, extra=data.draw(st.booleans()))
