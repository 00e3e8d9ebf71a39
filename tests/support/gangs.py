"""Gangs in a test's scheduler, from the few words that matter to the test.

Owns the short forms of groups and members. It must not know what is tested.
"""

from __future__ import annotations

from typing import Any, Unpack

from scheduler_core.gangs.preemption import GangPreview
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, CompositePodGroup, GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_members import Gang
from tests.support.builders import PodFields, pod
from tests.support.scheduling import DEFAULT_NAME, Rig

LABEL = POD_GROUP_LABELS[GroupSource.BAYPLAN]


def key(name: str = "train", namespace: str = "default") -> GroupKey:
    """A group of Bayplan's own API."""
    return GroupKey(GroupSource.BAYPLAN, namespace, name)


def group(name: str = "train", min_member: int = 2, namespace: str = "default", **fields: Any) -> PodGroup:
    """A PodGroup."""
    return PodGroup(key(name, namespace), f"uid-of-group-{namespace}-{name}", min_member, **fields)


def member(name: str, of: str = "train", **fields: Unpack[PodFields]) -> Pod:
    """A pod that belongs to a group; one CPU unless said otherwise."""
    fields["labels"] = {**fields.get("labels", {}), LABEL: of}
    fields.setdefault("requests", {"cpu": "1"})
    return pod(name, **fields)


def members(count: int, of: str = "train", **fields: Unpack[PodFields]) -> list[Pod]:
    """Members named ``<group>-<number>``."""
    return [member(f"{of}-{number}", of, **fields) for number in range(count)]


def composite_group(name: str, min_groups: int = 1, parent: str = "", **fields: Any) -> CompositePodGroup:
    """Return a CompositePodGroup."""
    key = GroupKey(GroupSource.COMPOSITE, "default", name)
    return CompositePodGroup(key, f"uid-of-{name}", min_groups, parent, **fields)


def leaf_group(name: str, parent: str, min_member: int = 1, **fields: Any) -> PodGroup:
    """Return a native PodGroup below a CompositePodGroup."""
    key = GroupKey(GroupSource.NATIVE, "default", name)
    return PodGroup(key, f"uid-of-{name}", min_member, parent=parent, waits_for_gated=True, priority=0, **fields)


def add_groups(rig: Rig, *groups: PodGroup | CompositePodGroup) -> None:
    """Deliver groups to the scheduler."""
    for each in groups:
        rig.scheduler.group_feed.group_changed(each)


def gang_of(rig: Rig, name: str = "train") -> Gang:
    """A gang that exists."""
    gang = rig.queue.gangs.get(key(name))
    assert gang is not None
    return gang


def previewed(rig: Rig, name: str = "train") -> GangPreview:
    """The dry run of a gang's preemption, by the live default profile."""
    instance = rig.context.profiles.get(DEFAULT_NAME)
    assert instance is not None
    return rig.scheduler.cycles.preemption.preview(gang_of(rig, name), instance)


async def settle(rig: Rig) -> None:
    """Run the scheduler until nothing can be tried and nothing is bound."""
    async with rig.running():
        await rig.scheduler.until_idle()
