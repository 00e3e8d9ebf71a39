"""The accepted groups of one API: the last valid version of each object, and the problems of invalid ones.

An invalid edit changes nothing: the last valid version stays in effect until the object is valid again, is deleted, or
is replaced by another object of the same name.

    unknown --valid--> accepted --invalid edit--> accepted, with problems --valid--> accepted
    unknown --invalid--> problems only          accepted --deleted, or recreated with an invalid spec--> unknown
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup

log = logging.getLogger(__name__)


class GroupSink(Protocol):
    """Receiver of groups in the scheduler; see :class:`scheduler_core.feeds.pod_group_feed.GroupFeed`."""

    def serve(self, source: GroupSource) -> None:
        """Handle that all PodGroups of an API have been reported."""

    def withhold(self, source: GroupSource, reason: str) -> None:
        """Handle that the PodGroups of an API are not known; pods that name one are gated."""

    def group_changed(self, group: PodGroup | CompositePodGroup) -> None:
        """Handle a group that was added or changed."""

    def group_deleted(self, key: GroupKey) -> None:
        """Handle a deleted group."""

    def group_refused(self, key: GroupKey, problems: Iterable[Problem]) -> None:
        """Handle an object whose spec is invalid and never was valid; its members are gated.

        :meth:`group_changed` or :meth:`group_deleted` ends this.
        """


class GroupObserver(Protocol):
    """Observer that writes statuses; see :class:`bayplan.gangs.group_status_controller.GroupController`."""

    def known(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any], *, version: str = "") -> None:
        """Handle an object with a valid spec."""

    def invalid(self, key: GroupKey, uid: str, generation: int, problems: Iterable[Problem]) -> None:
        """Handle an object with an invalid spec; :meth:`known` is called for it first."""

    def gone(self, key: GroupKey) -> None:
        """Handle a deleted object."""


class ObservedGroup(Struct, frozen=True):
    """Metadata and status of a PodGroup object as the API server returns it, without its spec.

    Attributes:
        generation: ``metadata.generation``.
        version: Version of the API in which it was read; "" for the newest one.
    """

    key: GroupKey
    uid: str
    generation: int
    status: Mapping[str, Any]
    version: str = ""


class AcceptedGroups:
    """Accepted groups of one API.

    Args:
        observer: Notified of every validated object, after the sink, and of deleted objects.
    """

    def __init__(self, sink: GroupSink, observer: GroupObserver | None = None) -> None:
        self._sink = sink
        self._groups: dict[GroupKey, PodGroup | CompositePodGroup] = {}
        self._problems: dict[GroupKey, tuple[Problem, ...]] = {}
        self._observer = observer

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
        """Problems of the objects whose current spec is invalid."""
        return self._problems

    def accept(self, observed: ObservedGroup, group: PodGroup | CompositePodGroup) -> None:
        """Accept the valid spec of an object."""
        self._problems.pop(observed.key, None)
        self.update(group)
        self._notify(observed)

    def update(self, group: PodGroup | CompositePodGroup) -> None:
        """Replace an accepted group; the sink is called only if the group differs."""
        if self._groups.get(group.key) != group:
            # Stored last: if the sink raises, the group is delivered again.
            self._sink.group_changed(group)
            self._groups[group.key] = group

    def reject(self, observed: ObservedGroup, error: ConfigError) -> None:
        """Record the problems of an invalid spec; the accepted group stays unless it belongs to another object."""
        key = observed.key
        known = self._groups.get(key)
        if known is not None and known.uid != observed.uid:
            self._withdraw(key)
        self._problems[key] = error.problems
        effect = (
            "its last valid spec stays in effect" if key in self._groups else "its members wait until it is corrected"
        )
        if key not in self._groups:
            self._sink.group_refused(key, error.problems)
        log.warning("%s %s of %s is invalid; %s: %s", key.source.kind, key, key.source.api_group, effect, error)
        if self._observer is not None:
            self._notify(observed)
            self._observer.invalid(key, observed.uid, observed.generation, error.problems)

    def hold(self, observed: ObservedGroup, error: ConfigError) -> None:
        """Record the problems of an object that cannot be read: its last valid spec does not apply any more."""
        self._withdraw(observed.key)
        self.reject(observed, error)

    def delete(self, key: GroupKey) -> None:
        """Remove a deleted object."""
        if key in self._problems and key not in self._groups:
            self._sink.group_deleted(key)
        self._withdraw(key)
        self._problems.pop(key, None)
        if self._observer is not None:
            self._observer.gone(key)

    def _notify(self, observed: ObservedGroup) -> None:
        if self._observer is not None:
            key, uid, generation, status = observed.key, observed.uid, observed.generation, observed.status
            self._observer.known(key, uid, generation, status, version=observed.version)

    def _withdraw(self, key: GroupKey) -> None:
        if key in self._groups:
            self._sink.group_deleted(key)
            del self._groups[key]
