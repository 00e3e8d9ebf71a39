"""Law: what is written into a namespace names no pod or group of another namespace.

Users who may read PodGroups, conditions and events of their namespace must not learn what others run. Counts are
allowed. Two things have names: the object that an event of kube-scheduler is related to, which the API shows as a
reference, and nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bayplan.gangs.group_status import SeenGroup, group_event, group_status

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.ports import ObjectReference
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.gangs import add_groups
from tests.support.scheduling import Rig, default_rig

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "kubernetes.io/hostname"
SECRET = {"tenant-a": "merger", "tenant-b": "layoffs"}
"""A word that only names of this namespace contain."""
SOURCES = [GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS, GroupSource.NATIVE]
GangObjects = tuple[PodGroup, list[Pod]]


def written(made: Rig) -> Iterator[tuple[str, str]]:
    """Yield the namespace and the text of everything that was written into a namespace."""
    for patch in made.writer.patches:
        yield patch.namespace, f"{patch.condition and patch.condition.message}"
    for deletion in made.writer.deletions:
        yield deletion.namespace, f"{deletion.condition and deletion.condition.message}"
    for event in made.writer.events:
        yield event.regarding.namespace, f"{event.reason} {event.note}"
    for gang in made.queue.gangs:
        if gang.group is None:
            continue
        status = group_status(SeenGroup(gang.key, 1, {}), gang, NOW)
        yield gang.key.namespace, str(status.fields)
        reference = ObjectReference("PodGroup", gang.key.name, gang.key.namespace, gang.group_uid)
        if (reported := group_event(reference, status.verdict, None)) is not None:
            yield gang.key.namespace, reported.note


def gang(namespace: str, source: GroupSource, count: int, node_name: str = "", **fields: Any) -> GangObjects:
    """Return a group and its members, whose names contain the word of the namespace."""
    name = SECRET[namespace]
    of = PodGroup(GroupKey(source, namespace, name), f"uid-of-group-{namespace}", count, **fields)
    labels = {POD_GROUP_LABELS[source]: name} if source in POD_GROUP_LABELS else {}
    pods = [
        pod(
            f"{name}-{number}",
            namespace=namespace,
            uid=f"uid-{namespace}-of-gang-{number}",
            labels=labels,
            group="" if labels else name,
            priority=fields.get("priority") or 0,
            requests={"cpu": "1"},
            node_name=node_name,
        )
        for number in range(count)
    ]
    return of, pods


def single(namespace: str, number: int, node_name: str = "", priority: int = 0) -> Pod:
    name = f"{SECRET[namespace]}-{number}"
    uid = f"uid-{namespace}-{number}"
    return pod(name, namespace=namespace, uid=uid, node_name=node_name, priority=priority, requests={"cpu": "1"})


def add_gang(made: Rig, objects: GangObjects) -> None:
    add_groups(made, objects[0])
    made.add(*objects[1])


def gang_preempts_pods(made: Rig, source: GroupSource) -> None:
    made.add(small_node("n"), single("tenant-a", 0, "n"), single("tenant-a", 1, "n"))
    add_gang(made, gang("tenant-b", source, 2, priority=10))


def gang_preempts_gang(made: Rig, source: GroupSource) -> None:
    made.add(small_node("n"))
    add_gang(made, gang("tenant-a", source, 2, "n", priority=0, disrupts_whole=True))
    add_gang(made, gang("tenant-b", source, 2, priority=10))


def pod_preempts_gang(made: Rig, source: GroupSource) -> None:
    made.add(small_node("n"))
    add_gang(made, gang("tenant-a", source, 2, "n", priority=0))
    made.add(single("tenant-b", 0, priority=10))


def gangs_compete(made: Rig, source: GroupSource) -> None:
    made.add(small_node("n", 3, **{HOST: "n"}), small_node("m", 1, **{HOST: "m"}))
    for namespace in SECRET:
        add_gang(made, gang(namespace, source, 3, priority=0, topology=GroupTopology(HOST)))


def nothing_fits(made: Rig, source: GroupSource) -> None:
    made.add(small_node("n", 1), single("tenant-a", 0, "n", priority=100))
    add_gang(made, gang("tenant-b", source, 2, priority=0))
    made.add(single("tenant-b", 9))


SCENARIOS: list[Callable[[Rig, GroupSource], None]] = [
    gang_preempts_pods,
    gang_preempts_gang,
    pod_preempts_gang,
    gangs_compete,
    nothing_fits,
]


@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__.replace("_", " "))
async def test_no_name_of_another_namespace_is_written(
    scenario: Callable[[Rig, GroupSource], None], source: GroupSource
) -> None:
    """Conditions, events and statuses contain no name of a pod or group of another namespace."""
    made = default_rig()
    for each in SOURCES:
        made.scheduler.group_feed.serve(each)
    scenario(made, source)
    async with made.running():
        await made.scheduler.until_idle()
        made.clock.advance(120)
        await made.scheduler.until_idle()
    texts = list(written(made))
    assert len({namespace for namespace, _ in texts}) == 2 or scenario is nothing_fits
    for namespace, text in texts:
        for other, word in SECRET.items():
            assert other == namespace or word not in text, (namespace, text)
