"""Protocols of pod groups as plugins see them.

A view is live: each call returns the current state. Members are methods, not sets, because a group may have a thousand
members and few callers need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.snapshot.pod_info import PodInfo


class GroupView(Protocol):
    """One group: the content of its PodGroup, and its members in any state."""

    @property
    def key(self) -> GroupKey:
        """The key of the group."""

    @property
    def group(self) -> PodGroup | None:
        """The PodGroup object; None while there is none."""

    @property
    def since(self) -> float:
        """When the first member or the PodGroup was first seen, in the clock's seconds."""

    @property
    def known(self) -> int:
        """Number of members that exist, including finished and terminating ones."""

    @property
    def succeeded(self) -> int:
        """Number of members that have succeeded in the present run, including those whose pods are gone."""

    def members(self) -> Sequence[Pod]:
        """Return the members that exist, have not finished and are not being deleted."""

    def assigned(self) -> Sequence[PodInfo]:
        """Return the members that are assumed or bound, including those whose wait at Permit was just rejected."""

    def waiting(self) -> Sequence[PodInfo]:
        """Return the members without a node that are in the queue or in flight."""


class GroupViews(Protocol):
    """All pod groups."""

    def group_of(self, pod: Pod) -> GroupView | None:
        """Return the group of a pod; None for none, or if the API that the pod names is ignored."""

    def get(self, key: GroupKey) -> GroupView | None:
        """Return the group of this key; None if neither a PodGroup nor a member exists."""

    def disrupted_whole(self) -> Sequence[GroupView]:
        """Return the groups with scheduled members that are preempted all together or not at all."""

    def ranked(self) -> Sequence[GroupView]:
        """Return the groups with scheduled members that have a priority of their own."""
