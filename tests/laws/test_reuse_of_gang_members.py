"""Laws of gang members: each gets the node of a full scheduling cycle, and the node of an equal pod without a gang."""

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
    """Return a pod of the template that belongs to the gang."""
    pod = dataclasses.replace(template, name=f"p{number}").real()
    metadata = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, LABEL: "train"})
    return msgspec.structs.replace(pod, metadata=metadata)


async def scheduled_as_gang(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], counts: tuple[int, int, bool], *, reuses: bool
) -> tuple[dict[str, str], list[int], list[str]]:
    """Return the nodes of the members, the sums of the requested columns, and the notes of events."""
    count, needed, in_zone = counts
    made = rig(
        defaults=default_plugins(), options=SchedulerOptions(reuses_results=reuses), groups=[GroupSource.BAYPLAN]
    )
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
    """Nodes, events and columns are equal with and without cached results."""
    assert asyncio.run(scheduled_as_gang(cluster, templates, counts, reuses=True)) == asyncio.run(
        scheduled_as_gang(cluster, templates, counts, reuses=False)
    )


async def scheduled_as_single_pods(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], count: int
) -> dict[str, str]:
    """Return the nodes of the same pods, scheduled one after the other with their group label ignored."""
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
def test_members_get_the_nodes_of_single_pods(
    cluster: tuple[PlainNode, ...], templates: list[PlainPod], count: int
) -> None:
    """If all pods fit one after the other, each gets the same node in its gang."""
    singles = asyncio.run(scheduled_as_single_pods(cluster, templates, count))
    placed, _, _ = asyncio.run(scheduled_as_gang(cluster, templates, (count, count, False), reuses=True))
    if len(singles) == count:
        assert placed == singles
