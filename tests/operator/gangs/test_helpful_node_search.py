"""The search of new nodes for gangs that wait, on a scheduler in memory."""

from __future__ import annotations

import asyncio

from bayplan.gangs.helpful_node_search import HelpfulNodeSearch
from bayplan.process.copies import BackgroundDocuments

from scheduler_core.explain.findings import HelpfulNode
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.queueing.gang_members import Gang
from tests.support.builders import node
from tests.support.gangs import group, members, settle
from tests.support.presence import present
from tests.support.scheduling import Rig, gang_rig
from tests.support.tables import table

KEY = GroupKey(GroupSource.BAYPLAN, "default", "train")


class World:
    """A scheduler with one node for two members of a gang, and the search."""

    def __init__(self) -> None:
        self.made: Rig = gang_rig()
        self.changed: list[GroupKey] = []
        scheduler = self.made.scheduler
        documents = BackgroundDocuments(scheduler.context, None)
        self.search = HelpfulNodeSearch(scheduler, documents, self.made.clock, self.changed.append)
        self.made.add(node("a", allocatable={"cpu": "2", "pods": "10"}))

    @property
    def gang(self) -> Gang:
        """The gang ``train``."""
        return present(self.made.queue.gangs.get(KEY))

    async def pass_time(self, seconds: int) -> None:
        """Let time pass while the search runs; its modules are imported in a thread."""
        task = asyncio.create_task(self.search.run())
        await asyncio.sleep(0)
        for _ in range(seconds):
            await settle(self.made, after=1)
            count = len(self.changed)
            for _ in range(20):
                await asyncio.sleep(0.005 if not count else 0)
        task.cancel()


@table(
    "count, min_member, pinned, helpful",
    ("two-more-nodes", 6, 6, False, (HelpfulNode("a", 2),)),
    ("no-quorum", 2, 3, False, None),
    ("no-node-helps", 3, 3, True, None),
    ("fits", 2, 2, False, None),
)
async def test_new_nodes_of_a_gang(
    count: int, min_member: int, pinned: bool, helpful: tuple[HelpfulNode, ...] | None
) -> None:
    """New nodes are searched for a gang that waits for room, and for no other one."""
    world = World()
    world.made.scheduler.group_feed.group_changed(group(min_member=min_member))
    selector = {"kubernetes.io/hostname": "gone"} if pinned else {}
    world.made.add(*members(count, node_selector=selector))
    await settle(world.made)
    await world.pass_time(7)
    found = world.search.of(world.gang)
    assert (None if found is None else found.helpful) == helpful
    assert world.changed == ([KEY] if helpful else [])
    world.made.queue.close()


async def test_a_result_ends_with_the_wait() -> None:
    """The result of a gang that is scheduled is not shown any more."""
    world = World()
    world.made.scheduler.group_feed.group_changed(group(min_member=4))
    world.made.add(*members(4))
    await settle(world.made)
    await world.pass_time(7)
    assert present(world.search.of(world.gang)).text == "1 node like a would help"
    world.made.add(node("b", allocatable={"cpu": "2", "pods": "10"}))
    await settle(world.made, after=15)
    assert world.gang.outcome is not None
    assert world.gang.outcome.is_scheduled
    assert world.search.of(world.gang) is None
    world.made.queue.close()
