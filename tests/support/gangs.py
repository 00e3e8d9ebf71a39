"""Builders of PodGroups and their members, and shortcuts to gangs of a scheduler."""

from __future__ import annotations

from typing import Any, Unpack

from scheduler_core.gangs.preemption import GangPreview
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_LABELS, CompositePodGroup, GroupKey, GroupSource, PodGroup
from scheduler_core.queueing.gang_members import Gang
from tests.support.builders import PodFields, pod
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig

JOB = OwnerReference("Job", "train", "uid-of-job", "batch/v1", controller=True)
INDEX = "batch.kubernetes.io/job-completion-index"
LABEL = POD_GROUP_LABELS[GroupSource.BAYPLAN]


def key(name: str = "train", namespace: str = "default") -> GroupKey:
    """Return the key of a group of Bayplan's API."""
    return GroupKey(GroupSource.BAYPLAN, namespace, name)


def group(name: str = "train", min_member: int = 2, namespace: str = "default", **fields: Any) -> PodGroup:
    """Return a PodGroup."""
    return PodGroup(key(name, namespace), f"uid-of-group-{namespace}-{name}", min_member, **fields)


def member(name: str, of: str = "train", **fields: Unpack[PodFields]) -> Pod:
    """Return a member of a group; by default, it requests one CPU."""
    fields["labels"] = {**fields.get("labels", {}), LABEL: of}
    fields.setdefault("requests", {"cpu": "1"})
    return pod(name, **fields)


def members(count: int, of: str = "train", **fields: Unpack[PodFields]) -> list[Pod]:
    """Return members named ``<group>-<number>``."""
    return [member(f"{of}-{number}", of, **fields) for number in range(count)]


def indexed(name: str, index: int, **fields: Any) -> Pod:
    """Return a member of the indexed Job ``train``; by default, it requests two CPUs."""
    fields.setdefault("requests", {"cpu": "2"})
    return member(name, owners=(JOB,), labels={INDEX: str(index)}, **fields)


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


def gang_of(rig: Rig, name: str = "train", source: GroupSource = GroupSource.BAYPLAN) -> Gang:
    """Return the gang of a group; it must exist."""
    return present(rig.queue.gangs.get(GroupKey(source, "default", name)))


def previewed(rig: Rig, name: str = "train", source: GroupSource = GroupSource.BAYPLAN) -> GangPreview:
    """Return the dry run of a gang's preemption by the default profile."""
    instance = present(rig.context.profiles.get(DEFAULT_NAME))
    return rig.scheduler.cycles.preemption.preview(gang_of(rig, name, source), instance)


async def settle(rig: Rig, *added: Node | Pod, after: float = 0.0) -> None:
    """Advance the clock, add objects, and run the scheduler until it is idle."""
    if after:
        rig.clock.advance(after)
    rig.add(*added)
    async with rig.running():
        await rig.scheduler.until_idle()


async def settle_gang(rig: Rig, *pods: Pod, of: PodGroup) -> None:
    """Add a PodGroup and its pods, and run the scheduler until it is idle."""
    add_groups(rig, of)
    await settle(rig, *pods)
