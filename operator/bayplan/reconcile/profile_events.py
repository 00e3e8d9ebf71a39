"""Events about SchedulerProfiles and PluginConfigs.

Owns their reasons and when there is something new to tell. It must not know how they are sent. Why they are found by
comparing the status that is written with the one that follows: a status outlives the process, so a restart or another
leader, to whom everything is new, repeats nothing that was told before.

    Accepted              Normal   a generation of the spec is valid
    Rejected              Warning  a generation is not, or for other reasons than before
    SchedulerNameTaken    Warning  an older profile holds the name
    SchedulerNameReserved Warning  the name is kube-scheduler's
    Activated             Normal   a revision is live, and which one it replaces
    Withdrawn             Warning  no revision is live any more
    BindLost              Warning  someone else has begun to bind the profile's pods
    Valid, Invalid        Normal, Warning  the same of a PluginConfig as Accepted and Rejected
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from bayplan.reconcile.contested import CONTESTED
from bayplan.reconcile.status import read_conditions
from bayplan.resources.conditions import Condition, find_condition
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import API_VERSION, CustomResource, ObjectMeta
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.ports import Event, ObjectReference

_OWN_REASONS = frozenset({"SchedulerNameTaken", "SchedulerNameReserved"})


class _Teller(Struct, frozen=True):
    """Makes events about one object."""

    regarding: ObjectReference

    def normal(self, reason: str, action: str, note: str) -> Event:
        return Event(self.regarding, "Normal", reason, action, note)

    def warning(self, reason: str, action: str, note: str) -> Event:
        return Event(self.regarding, "Warning", reason, action, note)


class _Judgement(Struct, frozen=True):
    """A condition that tells whether something is valid, which is the event's reason too, and the words for it."""

    condition: str
    action: str
    subject: str
    refused: str


_ACCEPTED = _Judgement("Accepted", "Accepting", "spec", "Rejected")
_VALID = _Judgement("Valid", "Validating", "args", "Invalid")


def profile_events(meta: ObjectMeta, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """Give the events that a change of a SchedulerProfile's status calls for.

    Args:
        meta: The profile.
        before: The status as it was written.
        after: The status that is written now.

    Yields:
        What is new.
    """
    teller = _teller(SchedulerProfile, meta)
    yield from _judged(teller, _ACCEPTED, before, after)
    old, new = before.get("activeRevision"), after.get("activeRevision")
    if new and new != old:
        yield teller.normal("Activated", "Activating", f"Revision {new} is live{f', {old} before' if old else ''}.")
    elif old and not new:
        ready = find_condition(read_conditions(after), "Ready")
        yield teller.warning(
            "Withdrawn", "Activating", f"Revision {old} was withdrawn. {ready.message if ready else ''}"
        )
    was, now = (find_condition(read_conditions(status), CONTESTED) for status in (before, after))
    if now is not None and now.status == "True" and (was is None or was.status != "True"):
        yield teller.warning("BindLost", "Binding", now.message)


def plugin_config_events(meta: ObjectMeta, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    """Give the events that a change of a PluginConfig's status calls for; see :func:`profile_events`.

    Args:
        meta: The PluginConfig.
        before: The status as it was written.
        after: The status that is written now.

    Yields:
        What is new.
    """
    yield from _judged(_teller(PluginConfig, meta), _VALID, before, after)


def _judged(
    teller: _Teller, judgement: _Judgement, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Event]:
    """Tell of a judgement that is new."""
    found = _news(judgement.condition, before, after)
    if found is not None and found.status == "True":
        note = f"Generation {found.observed_generation} of the {judgement.subject} is valid."
        yield teller.normal(judgement.condition, judgement.action, note)
    elif found is not None:
        reason = found.reason if found.reason in _OWN_REASONS else judgement.refused
        yield teller.warning(reason, judgement.action, found.message)


def _news(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Condition | None:
    """A condition on the spec, where it judges another generation, or judges otherwise."""
    old, new = (find_condition(read_conditions(status), kind) for status in (before, after))
    if new is None:
        return None
    if old is None or (old.status, old.observed_generation) != (new.status, new.observed_generation):
        return new
    return new if new.status == "False" and new.message != old.message else None


def _teller(resource: type[CustomResource], meta: ObjectMeta) -> _Teller:
    return _Teller(ObjectReference(resource.definition.kind, meta.name, "", meta.uid, API_VERSION))
