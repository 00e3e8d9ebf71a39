"""Writes the statuses of custom resources when they change.

It compares with what it wrote last and not with each watch event: an event from before a write would make it write
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct

from bayplan.profiles.profile_status import CONTESTED, COUNT_INTERVAL_SECONDS, DEGRADED, status_change
from bayplan.resources.conditions import WITH_WARNINGS, Condition, ConditionState, find_condition, read_conditions
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import API_VERSION, CustomResource, ObjectMeta
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.ports import Clock, Event, ObjectReference

log = logging.getLogger(__name__)

_NODE_REASONS = {"NodesOvercommitted": "NodesContested"}
"""Reasons of events by those of conditions, if they differ from that of the condition's type."""
_OWN_REASONS = frozenset({"SchedulerNameTaken", "SchedulerNameReserved"})


class _EventFactory(Struct, frozen=True):
    regarding: ObjectReference

    def normal(self, reason: str, action: str, note: str) -> Event:
        return Event(self.regarding, "Normal", reason, action, note)

    def warning(self, reason: str, action: str, note: str) -> Event:
        return Event(self.regarding, "Warning", reason, action, note)


@dataclass(frozen=True, slots=True)
class _Validity:
    """A validity condition with the event's action, its subject, and the reason if it is false."""

    condition: str
    action: str
    subject: str
    rejected: str


_ACCEPTED = _Validity("Accepted", "Accepting", "spec", "Rejected")
_VALID = _Validity("Valid", "Validating", "args", "Invalid")


def profile_events(meta: ObjectMeta, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """Return the events for a change of a SchedulerProfile's status."""
    factory = _factory(SchedulerProfile, meta)
    yield from _validity_events(factory, _ACCEPTED, before, after)
    old, new = before.get("activeRevision"), after.get("activeRevision")
    if new and new != old:
        yield factory.normal("Activated", "Activating", f"Revision {new} is live{f', {old} before' if old else ''}.")
    elif old and not new:
        ready = find_condition(read_conditions(after), "Ready")
        yield factory.warning(
            "Withdrawn", "Activating", f"Revision {old} was withdrawn. {ready.message if ready else ''}"
        )
    for kind, reason, action in ((CONTESTED, "BindLost", "Binding"), (DEGRADED, DEGRADED, "Scheduling")):
        was, now = (find_condition(read_conditions(status), kind) for status in (before, after))
        if now is not None and now.status == "True" and (was is None or was.status != "True"):
            yield factory.warning(_NODE_REASONS.get(now.reason, reason), action, now.message)


def plugin_config_events(meta: ObjectMeta, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """Return the events for a change of a PluginConfig's status; see :func:`profile_events`."""
    yield from _validity_events(_factory(PluginConfig, meta), _VALID, before, after)


def _validity_events(
    factory: _EventFactory, validity: _Validity, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Event]:
    found = _changed_condition(validity.condition, before, after)
    if found is not None and found.reason == WITH_WARNINGS:
        yield factory.warning("HasNoEffect", validity.action, found.message)
    elif found is not None and found.status == "True":
        note = f"Generation {found.observed_generation} of the {validity.subject} is valid."
        yield factory.normal(validity.condition, validity.action, note)
    elif found is not None:
        reason = found.reason if found.reason in _OWN_REASONS else validity.rejected
        yield factory.warning(reason, validity.action, found.message)


def _changed_condition(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Condition | None:
    """Return a validity condition if it is about another generation, or if its result has changed."""
    old, new = (find_condition(read_conditions(status), kind) for status in (before, after))
    if new is None:
        return None
    if old is None or (old.status, old.observed_generation) != (new.status, new.observed_generation):
        return new
    has_findings = new.status == "False" or new.reason == WITH_WARNINGS
    return new if has_findings and new.message != old.message else None


def _factory(resource: type[CustomResource], meta: ObjectMeta) -> _EventFactory:
    return _EventFactory(ObjectReference(resource.definition.kind, meta.name, "", meta.uid, API_VERSION))


class StatusWriter(Protocol):
    """Interface for writing statuses of cluster-scoped custom resources."""

    async def replace_status(self, plural: str, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Replace the status of the object with this UID; raises NotFoundError if it is gone."""


@dataclass(frozen=True, slots=True)
class StatusSource:
    """A status to write, made from the last one and the time, and the events of a change between two statuses."""

    plural: str
    meta: ObjectMeta
    seen: Mapping[str, Any]
    make: Callable[[Mapping[str, Any], datetime], dict[str, Any]]
    events: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[Event]]


@dataclass(slots=True)
class _Written:
    plural: str
    name: str
    status: dict[str, Any]
    counts_at: float = float("-inf")


class StatusPublisher:
    """Writer of statuses and then of events about their changes; counts of an object at most every ten seconds."""

    def __init__(self, writer: StatusWriter, clock: Clock, record: Callable[[Event], None]) -> None:
        self._writer = writer
        self._clock = clock
        self._record = record
        self._written: dict[str, _Written] = {}

    async def publish(self, sources: Iterable[StatusSource], *, counts_too: bool = False) -> None:
        """Write the statuses that changed, ``counts_too`` before they are due, all before a failure is raised."""
        sources = list(sources)
        uids = {source.meta.uid for source in sources}
        self._written = {uid: written for uid, written in self._written.items() if uid in uids}
        failure: ClusterWriteError | None = None
        for source in sources:
            try:
                await self._publish(source, counts_too=counts_too)
            except NotFoundError:
                log.debug("%s %s is gone; its status is not written", source.plural, source.meta.name)
            except ClusterWriteError as error:
                failure = error
        if failure is not None:
            raise failure

    def status_of(self, uid: str) -> Mapping[str, Any] | None:
        """Return the status of an object as last written; None if it was not looked at yet."""
        written = self._written.get(uid)
        return None if written is None else written.status

    def conditions(self) -> Iterator[ConditionState]:
        """Yield every condition of every object, as last written."""
        for written in self._written.values():
            for condition in written.status.get("conditions") or ():
                yield ConditionState(
                    written.plural, written.name, str(condition.get("type")), str(condition.get("status"))
                )

    async def _publish(self, source: StatusSource, *, counts_too: bool) -> None:
        new = _Written(source.plural, source.meta.name, dict(source.seen))
        written = self._written.setdefault(source.meta.uid, new)
        wanted = source.make(written.status, self._clock.wall())
        change = status_change(written.status, wanted)
        now = self._clock.now()
        due = counts_too or now - written.counts_at >= COUNT_INTERVAL_SECONDS
        if not change.patch or not (change.at_once or due):
            return
        await self._writer.replace_status(source.plural, source.meta.name, source.meta.uid, wanted)
        before, written.status = written.status, wanted
        if change.counts:
            written.counts_at = now
        for event in source.events(before, wanted):
            self._record(event)
