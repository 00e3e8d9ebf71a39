"""The status of a gang whose lost member's room is taken, and becomes free again."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from bayplan.gangs.group_status_controller import GroupController, taken_room

from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.gangs import add_groups, gang_of, group, member, settle
from tests.support.group_world import DeferredStatusWriter
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import gang_rig


async def test_room_that_a_pod_of_higher_priority_takes() -> None:
    """The room is not reported as held while the pod runs there, and is again when the pod has left."""
    made, statuses, status = gang_rig(), DeferredStatusWriter(), dict[str, Any]()
    add_groups(made, group(min_member=2, hold_seconds=600.0))
    made.add(*(small_node(name) for name in "ab"))
    made.add(*(member(f"train-{name}", requests={"cpu": "2"}, node_name=name) for name in "ab"))
    gangs = made.queue.gangs
    controller = GroupController(
        gangs, statuses, RecordingWriter(), made.clock, taken=partial(taken_room, made.scheduler)
    )
    gang = gang_of(made)
    controller.known(gang.key, "uid-of-group-default-train", 1, {})

    async def status_later() -> tuple[bool, str]:
        for _ in range(16):
            made.clock.advance(0.5)
            for _ in range(10):
                await asyncio.sleep(0)
        for _, patch in statuses.sent:
            status.update(patch)
        healing = next(each for each in status["conditions"] if each["type"] == "Healing")
        return status["lost"][0]["held"], f"{healing['reason']}: {healing['message']}"

    running = asyncio.create_task(controller.run())
    made.scheduler.feed.pod_deleted(gang.pods["uid-of-default-train-a"])
    held, text = await status_later()
    assert held
    assert text.startswith("RoomHeld: Members were lost: room on a is held for default/train-a until ")
    await settle(made, pod("urgent", requests={"cpu": "2"}, priority=5))
    assert made.bound == {"urgent": "a"}
    taken = "MembersLost: Members were lost: pods of higher priority have taken the room of train-a."
    assert await status_later() == (False, taken)
    urgent = next(info.pod for pods in made.context.cache.columns.pods for uid, info in pods.items() if "urgent" in uid)
    made.scheduler.feed.pod_deleted(urgent)
    held, text = await status_later()
    assert held
    assert text.startswith("RoomHeld: ")
    running.cancel()
