"""Laws of what changes no decision: the order in which nodes were added, and neutral extenders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_set_types import Plugins
from tests.support.plain_profile import PLUGINS, PlainNode, PlainPod, real_objects
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import Rig, plugin_set, rig
from tests.support.scripted_extender import ScriptedExtender, decide, extender, extender_rig

ARRIVALS = st.integers(1, 5).flatmap(lambda count: st.tuples(*(pods(f"p{number}") for number in range(count))))
PROFILE = Plugins(multi_point=plugin_set(*PLUGINS))


async def decisions(made: Rig, cluster: Iterable[PlainNode], arrivals: tuple[PlainPod, ...]) -> list[object]:
    """Return the nodes of pods, None for a pod without a node, and the messages of events."""
    (instance,) = made.context.profiles
    made.add(*real_objects(cluster))
    placed: list[object] = []
    for each in arrivals:
        made.add(each.real())
        attempt = await decide(made) if instance.extenders else made.decide()
        placed.append(None if attempt is None else attempt.node_name)
    made.queue.close()
    return [*placed, *(event.note for event in made.writer.events)]


@given(cluster=CLUSTERS, arrivals=ARRIVALS, data=st.data())
def test_the_order_of_nodes_changes_no_decision(
    cluster: tuple[PlainNode, ...], arrivals: tuple[PlainPod, ...], data: st.DataObject
) -> None:
    """Nodes and messages are equal for any order of nodes, also if rows were freed and reused.

    Each image has the same size on all nodes, because kube-scheduler uses the size on the node that was added first.
    """
    equal = [replace(node, images=tuple((name, 500) for name, _ in node.images)) for node in cluster]
    shuffled, made, again = data.draw(st.permutations(equal)), rig(defaults=PROFILE), rig(defaults=PROFILE)
    if data.draw(st.booleans()):
        # A deleted node leaves a free row.
        deleted = PlainNode("deleted", 100, 100, 1).real()
        again.add(deleted)
        again.scheduler.feed.node_deleted(deleted)
    assert asyncio.run(decisions(made, equal, arrivals)) == asyncio.run(decisions(again, shuffled, arrivals))


@given(cluster=CLUSTERS, arrivals=ARRIVALS, ignorable=st.booleans())
def test_a_neutral_extender_changes_no_decision(
    cluster: tuple[PlainNode, ...], arrivals: tuple[PlainPod, ...], ignorable: bool
) -> None:
    """Nodes and messages are equal with and without an extender that accepts all nodes and returns no scores.

    They are equal also if an ignorable extender fails.
    """
    client = ScriptedExtender()
    if ignorable:
        client.fail("filter")
        client.fail("prioritize")
    with_extender = extender_rig((extender(ignorable=ignorable), client), defaults=PROFILE)
    assert asyncio.run(decisions(with_extender, cluster, arrivals)) == asyncio.run(
        decisions(rig(defaults=PROFILE), cluster, arrivals)
    )
