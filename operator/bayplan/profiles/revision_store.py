"""History of each profile's valid revisions, stored in the cluster as ControllerRevisions.

The owner's UID is checked on reading: a profile that was deleted and created again under its name starts without a
history. Content that is applied again gets a new number and its old number is deleted, as with a Deployment: the
history has each content once, and the newest number is live.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from bayplan.kube.custom_resources import ControllerRevision
from bayplan.profiles.controller_revision_format import (
    MANAGED,
    Origin,
    StoredRevision,
    as_controller_revision,
    read_revision,
)
from bayplan.resources.resource_model import CHANGE_CAUSE, ObjectMeta
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError

REVISION_HISTORY_LIMIT = 10
_MAX_CREATIONS = 8
"""Attempts to store one revision before the error is reported; between them the numbers double their distance."""


class RevisionStore(Protocol):
    """Store of ControllerRevisions; see :class:`bayplan.kube.custom_resources.ControllerRevisions`."""

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]:
        """Return the revisions with all these labels, oldest first."""

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        """Create a revision."""

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a revision."""

    async def delete(self, name: str, uid: str = "") -> None:
        """Delete a revision."""


class RevisionHistory:
    """The stored revisions, and those waiting to be stored."""

    def __init__(self, store: RevisionStore) -> None:
        self._store = store
        self._stored: dict[str, StoredRevision] = {}
        self._waiting: dict[str, tuple[ObjectMeta, ProfileConfig, Origin]] = {}
        self._causes: dict[str, tuple[str, str]] = {}

    async def load(self) -> None:
        """Read all stored revisions.

        Raises:
            ClusterWriteError: The request failed.
        """
        found = await self._store.list(MANAGED)
        self._stored = {stored.name: stored for stored in map(read_revision, found)}

    def last_good(self, profile_uid: str) -> list[ProfileConfig]:
        """Return the stored revisions of a profile that can be read, newest first."""
        stored = sorted(self.of(profile_uid), key=lambda one: -one.number)
        return [one.config for one in stored if one.config is not None]

    def note(self, profile: ObjectMeta, config: ProfileConfig, origin: Origin | None = None) -> None:
        """Queue a revision that went live for the next :meth:`save`."""
        self._waiting[profile.uid] = (profile, config, origin or Origin())

    def explain(self, profile_uid: str, revision: str, cause: str) -> None:
        """Queue the change cause of a live revision for the next :meth:`save`, if it was set after the edit.

        Args:
            profile_uid: UID of its profile.
            revision: Hash of its content.
            cause: The change cause as the user wrote it; nothing happens if it is empty.
        """
        if cause and any(one.hash == revision and one.origin.cause != cause for one in self.of(profile_uid)):
            self._causes[profile_uid] = (revision, cause)

    def forget(self, profile_uid: str) -> None:
        """Drop the revisions of a deleted profile; the API server deletes them with their owner."""
        self._waiting.pop(profile_uid, None)
        self._causes.pop(profile_uid, None)
        for one in self.of(profile_uid):
            del self._stored[one.name]

    async def save(self) -> None:
        """Write what is queued, and delete what is too old or was applied again; what fails stays queued.

        Raises:
            ClusterWriteError: A request failed or was refused; the revisions of the other profiles were attempted.
        """
        failed: ClusterWriteError | None = None
        for uid in list(self._waiting):
            try:
                await self._save_waiting(uid)
            except ClusterWriteError as error:
                failed = failed or error
        for uid in list(self._causes):
            try:
                await self._write_cause(uid)
            except ClusterWriteError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def _save_waiting(self, profile_uid: str) -> None:
        attempts = 0
        # A newer revision may be queued while one is written.
        while (waiting := self._waiting.get(profile_uid)) is not None:
            profile, config, origin = waiting
            newest = max(self.of(profile_uid), key=lambda one: one.number, default=None)
            if newest is None or newest.config is None or newest.hash != config.revision():
                try:
                    await self._create(profile, config, origin, skipped=(1 << attempts) - 1)
                except ConflictError as error:
                    attempts += 1
                    if attempts == _MAX_CREATIONS:
                        raise ConflictError(
                            f"The revision {config.revision()} of SchedulerProfile {profile.name} cannot be stored: "
                            f"{error} Delete the ControllerRevisions of this name that lack the labels of Bayplan."
                        ) from error
                    # A response was lost, or another process was faster: choose the number again. If the name is taken
                    # by an object without the labels, the list does not have it, so numbers are skipped.
                    await self.load()
                    continue
            else:
                self.explain(profile_uid, config.revision(), origin.cause)
            if self._waiting.get(profile_uid) == waiting:
                del self._waiting[profile_uid]
            await self._delete_old(profile_uid)

    def of(self, profile_uid: str) -> list[StoredRevision]:
        """Return the stored revisions of a profile, in any order."""
        return [stored for stored in self._stored.values() if stored.profile_uid == profile_uid]

    async def _create(self, profile: ObjectMeta, config: ProfileConfig, origin: Origin, skipped: int) -> None:
        numbers = (stored.number for stored in self._stored.values() if stored.profile == profile.name)
        number = 1 + skipped + max(numbers, default=0)
        made = as_controller_revision((profile.name, profile.uid), number, config, origin)
        created = read_revision(await self._store.create(made))
        self._stored[created.name] = replace(created, config=config)

    async def _delete_old(self, profile_uid: str) -> None:
        newer: set[str] = set()
        for one in sorted(self.of(profile_uid), key=lambda one: -one.number):
            if one.hash in newer or len(newer) == REVISION_HISTORY_LIMIT:
                await self._store.delete(one.name)
                self._stored.pop(one.name, None)
            else:
                newer.add(one.hash)

    async def _write_cause(self, profile_uid: str) -> None:
        revision, cause = self._causes[profile_uid]
        for one in self.of(profile_uid):
            if one.hash == revision and one.origin.cause != cause:
                try:
                    await self._store.annotate(one.name, {CHANGE_CAUSE: cause})
                except NotFoundError:
                    # Deleted by a user; it is stored again when it goes live again.
                    self._stored.pop(one.name, None)
                else:
                    self._stored[one.name] = replace(one, origin=replace(one.origin, cause=cause))
        if self._causes.get(profile_uid) == (revision, cause):
            del self._causes[profile_uid]
