"""Good revisions of profiles, kept in the cluster so that they survive this process.

Owns which revisions are kept and their numbers. It must not know when a revision is good, nor its form as an object.
Why the owner's UID is checked on reading: a profile that was deleted and created again under its name starts without
a past. Why content that comes back takes a new number and its old one goes: as with a Deployment, the history tells
each content once, and the newest number is what is live.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from bayplan.kube.controller_revisions import ControllerRevision
from bayplan.resources.resource_model import ObjectMeta
from bayplan.stored_revision import (
    CHANGE_CAUSE,
    MANAGED,
    Origin,
    StoredRevision,
    as_controller_revision,
    read_revision,
)
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConflictError, NotFoundError

KEPT_REVISIONS = 10


class RevisionStore(Protocol):
    """Where ControllerRevisions are; see :class:`bayplan.kube.controller_revisions.ControllerRevisions`."""

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]:
        """Those that carry all labels, oldest first."""

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        """Create one."""

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of one."""

    async def delete(self, name: str, uid: str = "") -> None:
        """Delete one."""


class RevisionHistory:
    """What is kept, and what waits to be."""

    def __init__(self, store: RevisionStore) -> None:
        self._store = store
        self._kept: dict[str, StoredRevision] = {}
        self._waiting: dict[str, tuple[ObjectMeta, ProfileConfig, Origin]] = {}
        self._causes: dict[str, tuple[str, str]] = {}

    async def load(self) -> None:
        """Read all that is kept.

        Raises:
            ClusterWriteError: The API server could not be asked.
        """
        found = await self._store.list(MANAGED)
        self._kept = {kept.name: kept for kept in map(read_revision, found)}

    def last_good(self, profile_uid: str) -> list[ProfileConfig]:
        """The kept revisions of a profile that can be read, newest first."""
        kept = sorted(self._of(profile_uid), key=lambda one: -one.number)
        return [one.config for one in kept if one.config is not None]

    def note(self, profile: ObjectMeta, config: ProfileConfig, origin: Origin | None = None) -> None:
        """Have a revision that went live kept by the next :meth:`save`."""
        self._waiting[profile.uid] = (profile, config, origin or Origin())

    def explain(self, profile_uid: str, revision: str, cause: str) -> None:
        """Have the next :meth:`save` write down why a revision that is live was made, where that was said later.

        Args:
            profile_uid: Of its profile.
            revision: Name of its content.
            cause: In the words of whoever changed it; nothing happens when it is empty.
        """
        if cause and any(one.hash == revision and one.origin.cause != cause for one in self._of(profile_uid)):
            self._causes[profile_uid] = (revision, cause)

    def forget(self, profile_uid: str) -> None:
        """Drop the revisions of a profile that is gone; the API server deletes them with their owner."""
        self._waiting.pop(profile_uid, None)
        self._causes.pop(profile_uid, None)
        for one in self._of(profile_uid):
            del self._kept[one.name]

    async def save(self) -> None:
        """Write what waits, and delete what is too old or has come back; what fails waits on.

        Raises:
            ClusterWriteError: The API server refused, or could not be asked.
        """
        while self._waiting:
            uid, waiting = next(iter(self._waiting.items()))
            profile, config, origin = waiting
            newest = max(self._of(uid), key=lambda one: one.number, default=None)
            if newest is None or newest.config is None or newest.config.revision() != config.revision():
                try:
                    await self._create(profile, config, origin)
                except ConflictError:
                    # An answer was lost, or another instance was faster: the number is chosen anew.
                    await self.load()
                    continue
            else:
                self.explain(uid, config.revision(), origin.cause)
            if self._waiting.get(uid) == waiting:
                del self._waiting[uid]
            await self._delete_old(uid)
        while self._causes:
            await self._write_cause(next(iter(self._causes)))

    def _of(self, profile_uid: str) -> list[StoredRevision]:
        return [kept for kept in self._kept.values() if kept.profile_uid == profile_uid]

    async def _create(self, profile: ObjectMeta, config: ProfileConfig, origin: Origin) -> None:
        number = 1 + max((kept.number for kept in self._kept.values() if kept.profile == profile.name), default=0)
        made = as_controller_revision((profile.name, profile.uid), number, config, origin)
        created = read_revision(await self._store.create(made))
        self._kept[created.name] = replace(created, config=created.config or config)

    async def _delete_old(self, profile_uid: str) -> None:
        newer: set[str] = set()
        for one in sorted(self._of(profile_uid), key=lambda one: -one.number):
            if one.hash in newer or len(newer) == KEPT_REVISIONS:
                await self._store.delete(one.name)
                self._kept.pop(one.name, None)
            else:
                newer.add(one.hash)

    async def _write_cause(self, profile_uid: str) -> None:
        revision, cause = self._causes[profile_uid]
        for one in self._of(profile_uid):
            if one.hash == revision and one.origin.cause != cause:
                try:
                    await self._store.annotate(one.name, {CHANGE_CAUSE: cause})
                except NotFoundError:
                    # Somebody has deleted it; it is kept anew when it goes live again.
                    self._kept.pop(one.name, None)
                else:
                    self._kept[one.name] = replace(one, origin=replace(one.origin, cause=cause))
        if self._causes.get(profile_uid) == (revision, cause):
            del self._causes[profile_uid]
