"""What is known in memory about each SchedulerProfile, for reading: its conditions and its stored revisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from bayplan.profiles.applied_profile import AppliedProfile
from bayplan.profiles.controller_revision_format import StoredRevision


class ProfileReading(Struct, frozen=True):
    """A SchedulerProfile of this process.

    Attributes:
        name: Name of the object.
        scheduler_name: The scheduler name that it claims.
        live_revision: Hash of the revision that runs, "" if none does.
        shadow_of: Scheduler name of the live profile of a shadow; "" for other profiles.
        conditions: Conditions of its status, as last written.
        revisions: Its stored revisions, newest first.
    """

    name: str
    scheduler_name: str
    live_revision: str
    shadow_of: str
    conditions: tuple[Mapping[str, Any], ...]
    revisions: tuple[StoredRevision, ...]


def reading_of(
    applied: AppliedProfile, status: Mapping[str, Any], revisions: Iterable[StoredRevision]
) -> ProfileReading:
    """Return what is known about a profile.

    Args:
        applied: The profile after its desired state was applied.
        status: Its status as last written.
        revisions: Its stored revisions in any order.
    """
    findings = applied.findings
    return ProfileReading(
        name=applied.desired.meta.name,
        scheduler_name=findings.scheduler_name,
        live_revision=findings.live_revision,
        shadow_of="" if findings.shadow is None else findings.shadow.shadow_of,
        conditions=tuple(status.get("conditions") or ()),
        revisions=tuple(sorted(revisions, key=lambda each: -each.number)),
    )
