"""Events about SchedulerProfiles and PluginConfigs.

They are derived from the difference between the last written status and the next one: a status outlives the process, so
that a restart or a new leader repeats no event.

    Accepted              Normal   a generation of the spec is valid
    Rejected              Warning  a generation is invalid, or for other reasons than before
    SchedulerNameTaken    Warning  an older profile holds the name
    SchedulerNameReserved Warning  the name is kube-scheduler's
    Activated             Normal   a revision is live, and which one it replaces
    Withdrawn             Warning  no revision is live any more
    BindLost              Warning  another client has begun to bind the profile's pods
    Valid, Invalid        Normal, Warning  of a PluginConfig, like Accepted and Rejected
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from bayplan.profiles.contested_condition import CONTESTED
from bayplan.resources.conditions import Condition, find_condition, read_conditions
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import API_VERSION, CustomResource, ObjectMeta
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.ports import Event, ObjectReference

_OWN_REASONS = frozenset({"SchedulerNameTaken", "SchedulerNameReserved"})


class _EventFactory(Struct, frozen=True):
    """Factory of events about one object."""

    regarding: ObjectReference

    def normal(self, reason: str, action: str, note: str) -> Event:
        return Event(self.regarding, "Normal", reason, action, note)

    def warning(self, reason: str, action: str, note: str) -> Event:
        return Event(self.regarding, "Warning", reason, action, note)


class _Validity(Struct, frozen=True):
    """A validity condition with the event's action, its subject, and the reason if it is false."""

    condition: str
    action: str
    subject: str
    rejected: str


_ACCEPTED = _Validity("Accepted", "Accepting", "spec", "Rejected")
_VALID = _Validity("Valid", "Validating", "args", "Invalid")


def profile_events(meta: ObjectMeta, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """Return the events for a change of a SchedulerProfile's status.

    Args:
        meta: The profile.
        before: The last written status.
        after: The new status.

    Yields:
        The events.
    """
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
    was, now = (find_condition(read_conditions(status), CONTESTED) for status in (before, after))
    if now is not None and now.status == "True" and (was is None or was.status != "True"):
        yield factory.warning("BindLost", "Binding", now.message)


def plugin_config_events(meta: ObjectMeta, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """Return the events for a change of a PluginConfig's status; see :func:`profile_events`.

    Args:
        meta: The PluginConfig.
        before: The last written status.
        after: The new status.

    Yields:
        The events.
    """
    yield from _validity_events(_factory(PluginConfig, meta), _VALID, before, after)


def _validity_events(
    factory: _EventFactory, validity: _Validity, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Event]:
    """Yield the event about a validity condition that changed."""
    found = _changed_condition(validity.condition, before, after)
    if found is not None and found.status == "True":
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
    return new if new.status == "False" and new.message != old.message else None


def _factory(resource: type[CustomResource], meta: ObjectMeta) -> _EventFactory:
    return _EventFactory(ObjectReference(resource.definition.kind, meta.name, "", meta.uid, API_VERSION))
