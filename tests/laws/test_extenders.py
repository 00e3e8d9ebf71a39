"""Law of neutral extenders: an extender that accepts all nodes and returns no scores changes no decision."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_set_types import Plugins
from tests.support.plain_profile import PLUGINS, PlainNode, PlainPod
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import Rig, plugin_set, rig
from tests.support.scripted_extender import ScriptedExtender, decide, extender, extender_rig

ARRIVALS = st.integers(1, 5).flatmap(lambda count: st.tuples(*(pods(f"p{number}") for number in range(count))))
PROFILE = Plugins(multi_point=plugin_set(*PLUGINS))


async def decisions(made: Rig, cluster: tuple[PlainNode, ...], arrivals: tuple[PlainPod, ...]) -> list[object]:
    """Return the nodes of pods, None for a pod without a node, and the messages of events."""
    (instance,) = made.context.profiles
    made.add(*(node.real() for node in cluster))
    made.add(*(other.real() for node in sorted(cluster, key=lambda node: node.name) for other in node.running_pods))
    placed: list[object] = []
    for each in arrivals:
        made.add(each.real())
        attempt = await decide(made) if instance.extenders else made.decide()
        placed.append(None if attempt is None else attempt.node_name)
    made.queue.close()
    return [*placed, *(event.note for event in made.writer.events)]


@given(cluster=CLUSTERS, arrivals=ARRIVALS, ignorable=st.booleans())
def test_a_neutral_extender_changes_no_decision(
    cluster: tuple[PlainNode, ...], arrivals: tuple[PlainPod, ...], ignorable: bool
) -> None:
    """Nodes and messages are equal with and without the extender, also if an ignorable extender fails."""
    client = ScriptedExtender()
    if ignorable:
        client.fail("filter")
        client.fail("prioritize")
    with_extender = extender_rig((extender(ignorable=ignorable), client), defaults=PROFILE)
    assert asyncio.run(decisions(with_extender, cluster, arrivals)) == asyncio.run(
        decisions(rig(defaults=PROFILE), cluster, arrivals)
    )
