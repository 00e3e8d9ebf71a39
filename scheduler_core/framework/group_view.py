"""Groups of pods as plugins see them.

Owns the two protocols; whoever keeps the groups implements them. A view is live: what it answers is how things are when
it is asked. Why methods where a set would do: members are looked through only when somebody wants to know, and a group
may have a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.snapshot.pod_info import PodInfo


class GroupView(Protocol):
    """One group: what its PodGroup asks for, and its members wherever they are."""

    @property
    def key(self) -> GroupKey:
        """Which group."""

    @property
    def group(self) -> PodGroup | None:
        """What the PodGroup object asks for; None while there is none."""

    @property
    def since(self) -> float:
        """When its first member, or its PodGroup, was seen, in the clock's seconds."""

    @property
    def known(self) -> int:
        """How many members exist, ended ones and those being deleted among them: there are never more of any kind."""

    @property
    def succeeded(self) -> int:
        """How many members have ended well."""

    def members(self) -> Sequence[Pod]:
        """The members that exist, have not ended and are not being deleted."""

    def assigned(self) -> Sequence[PodInfo]:
        """Those of them that have a node, bound or only assumed; one whose wait at Permit was refused still has it."""

    def waiting(self) -> Sequence[PodInfo]:
        """Those of them that are in the queue or in flight without a node."""


class GroupViews(Protocol):
    """The groups."""

    def group_of(self, pod: Pod) -> GroupView | None:
        """The group that a pod belongs to; None for none, or where the API that it names is ignored."""

    def get(self, key: GroupKey) -> GroupView | None:
        """The group of this key; None if neither it nor any member exists."""

    def disrupted_whole(self) -> Sequence[GroupView]:
        """The groups with placed members of which a preemption takes all or none."""

    def ranked(self) -> Sequence[GroupView]:
        """The groups with placed members that have a priority of their own."""
