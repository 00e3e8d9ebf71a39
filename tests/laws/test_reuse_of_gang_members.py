"""The laws of gang members: each gets the node of the full scheduling cycle, and that of a pod without a gang."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource, GroupTopology
from scheduler_core.scheduler import SchedulerOptions
from tests.support.gangs import LABEL, group
from tests.support.plain_profile import PlainNode, PlainPod
from tests.support.random_clusters import CLUSTERS, pods
from tests.support.scheduling import rig

TEMPLATES = st.lists(pods("template"), min_size=1, max_size=2)
COUNTS = st.integers(2, 9)


def member(template: PlainPod, number: int) -> Pod:
    """A pod like the template that belongs to the gang."""
    pod = dataclasses.replace(template, name=f"p{number}").real()
    metadata = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, LABEL: "train"})
    return msgspec.structs.replace(pod, metadata=metadata)


async def decided(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], counts: tuple[int, int, bool], *, reuses: bool
) -> tuple[dict[str, str], list[int], list[str]]:
    """Return the nodes of members, or why there are none."""
    count, needed, in_zone = counts
    made = rig(defaults=default_plugins(), options=SchedulerOptions(reuses_results=reuses))
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    made.add(*(each.real() for each in cluster), *(other.real() for each in cluster for other in each.running_pods))
    topology = GroupTopology("zone") if in_zone else None
    made.scheduler.group_feed.group_changed(group(min_member=min(needed, count), topology=topology))
    made.add(*(member(templates[number * len(templates) // count], number) for number in range(count)))
    entry = made.pop()
    assert isinstance(entry, QueuedGang)
    attempts = await made.scheduler.cycles.gangs.schedule(entry)
    made.queue.close()
    columns = made.context.cache.columns
    return (
        {attempt.info.key: attempt.node_name for attempt in attempts},
        columns.requested.sum(axis=1).tolist(),
        [event.note for event in made.writer.events],
    )


@given(cluster=CLUSTERS, templates=TEMPLATES, counts=st.tuples(COUNTS, COUNTS, st.booleans()))
def test_reuse_changes_no_decision(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], counts: tuple[int, int, bool]
) -> None:
    """Nodes, events and columns are equal with and without reuse."""
    assert asyncio.run(decided(cluster, templates, counts, reuses=True)) == asyncio.run(
        decided(cluster, templates, counts, reuses=False)
    )


async def alone(cluster: tuple[PlainNode, ...], templates: list[PlainPod], count: int) -> dict[str, str]:
    """Return the nodes of the same pods one after the other, with their label ignored."""
    made = rig(defaults=default_plugins())
    made.queue.gangs.ignore(GroupSource.BAYPLAN)
    made.add(*(each.real() for each in cluster), *(other.real() for each in cluster for other in each.running_pods))
    placed: dict[str, str] = {}
    for number in range(count):
        made.add(member(templates[number * len(templates) // count], number))
        attempt = made.decide()
        if attempt is not None:
            placed[attempt.info.key] = attempt.node_name
    made.queue.close()
    return placed


@given(cluster=CLUSTERS, templates=TEMPLATES, count=COUNTS)
def test_members_are_placed_as_pods_without_a_gang(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], count: int
) -> None:
    """If all of them fit one after the other, each gets the node that it gets in its gang."""
    singles = asyncio.run(alone(cluster, templates, count))
    placed, _, _ = asyncio.run(decided(cluster, templates, (count, count, False), reuses=True))
    if len(singles) == count:
        assert placed == singles
