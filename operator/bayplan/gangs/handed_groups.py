"""The groups that are in force: what the core was last told of each, and what is wrong with those it was not told of.

Owns the rule that a bad edit changes nothing: the last good form of an object stays in force until the object is good
again, is gone, or is another one of its name. Must not know the APIs, nor what is written into a status: whoever does
that observes.

    unknown --good--> in force --bad edit--> in force, problems noted --good--> in force
    unknown --bad--> problems noted             in force --gone, or bad and another object--> unknown
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup

log = logging.getLogger(__name__)


class GroupTaker(Protocol):
    """Who schedules; see :class:`scheduler_core.cycle.group_feed.GroupFeed`."""

    def serve(self, source: GroupSource) -> None:
        """All PodGroups of a source have been reported."""

    def withhold(self, source: GroupSource, reason: str) -> None:
        """The PodGroups of a source are not known; pods that name one are held back."""

    def group_changed(self, group: PodGroup) -> None:
        """A group has come or has changed."""

    def group_deleted(self, key: GroupKey) -> None:
        """A group is gone."""


class GroupObserver(Protocol):
    """Who answers for statuses; see :class:`bayplan.gangs.group_controller.GroupController`."""

    def known(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any]) -> None:
        """An object was seen, and its spec is valid."""

    def invalid(self, key: GroupKey, uid: str, generation: int, problems: Iterable[Problem]) -> None:
        """An object was seen, and its spec is not valid; :meth:`known` was told of it just before."""

    def gone(self, key: GroupKey) -> None:
        """An object is gone."""


class ShownForm(Struct, frozen=True):
    """An object as it is shown, besides its spec.

    Attributes:
        key: Its name.
        uid: Its UID.
        generation: Its ``metadata.generation``.
        status: Its status.
    """

    key: GroupKey
    uid: str
    generation: int
    status: Mapping[str, Any]


class HandedGroups:
    """Groups of one source.

    Args:
        taker: Is told what is in force.

    Attributes:
        observers: Are told of every form that was judged, after the taker, and of objects that are gone.
    """

    def __init__(self, taker: GroupTaker) -> None:
        self._taker = taker
        self._in_force: dict[GroupKey, PodGroup] = {}
        self._problems: dict[GroupKey, tuple[Problem, ...]] = {}
        self.observers: list[GroupObserver] = []

    @property
    def in_force(self) -> Mapping[GroupKey, PodGroup]:
        """What the core goes by."""
        return self._in_force

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
        """What is wrong with objects whose present form is not in force."""
        return self._problems

    def accept(self, form: ShownForm, group: PodGroup) -> None:
        """Put the present form of an object in force: it is good."""
        self._problems.pop(form.key, None)
        self.renew(group)
        for observer in self.observers:
            observer.known(form.key, form.uid, form.generation, form.status)

    def renew(self, group: PodGroup) -> None:
        """Put what the form in force means now in its place; the core is not told again of what it knows."""
        if self._in_force.get(group.key) != group:
            self._in_force[group.key] = group
            self._taker.group_changed(group)

    def refuse(self, form: ShownForm, error: ConfigError) -> None:
        """Note what is wrong with a form; what is in force stays, unless it was of another object."""
        key = form.key
        known = self._in_force.get(key)
        if known is not None and known.uid != form.uid:
            self._withdraw(key)
        self._problems[key] = error.problems
        stays = (
            "its last good form stays in force" if key in self._in_force else "its members wait until it is corrected"
        )
        log.warning("PodGroup %s of %s cannot be taken, %s: %s", key, key.source.value, stays, error)
        for observer in self.observers:
            observer.known(key, form.uid, form.generation, form.status)
            observer.invalid(key, form.uid, form.generation, error.problems)

    def forget(self, key: GroupKey) -> None:
        """An object is gone."""
        self._problems.pop(key, None)
        self._withdraw(key)
        for observer in self.observers:
            observer.gone(key)

    def _withdraw(self, key: GroupKey) -> None:
        if self._in_force.pop(key, None) is not None:
            self._taker.group_deleted(key)
