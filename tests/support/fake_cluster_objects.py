"""ControllerRevisions and statuses in memory, for tests of the profile controller, with failures that a test sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.kube.custom_resources import ControllerRevision
from msgspec.structs import replace

from hack.controlplane.api_client import condition_of
from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError


class FakeRevisions:
    """Implements :class:`bayplan.profiles.revision_store.RevisionStore`.

    Attributes:
        stored: Revisions by name.
        failures: Errors of the next writes, one for each.
    """

    def __init__(self) -> None:
        self.stored: dict[str, ControllerRevision] = {}
        self.failures: list[ClusterWriteError] = []
        self._created = 0

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]:
        """Return the revisions that have all labels."""
        found = [one for one in self.stored.values() if labels.items() <= one.metadata.labels.items()]
        return sorted(found, key=lambda one: one.revision)

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        """Store a revision; an existing name is a conflict."""
        self._raise_next_failure()
        if revision.metadata.name in self.stored:
            raise ConflictError("taken")
        self._created += 1
        metadata = replace(revision.metadata, uid=f"uid-of-revision-{self._created}")
        self.stored[revision.metadata.name] = created = replace(revision, metadata=metadata)
        return created

    async def annotate(self, name: str, uid: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a revision."""
        self._raise_next_failure()
        if name not in self.stored or self.stored[name].metadata.uid != uid:
            raise NotFoundError("gone")
        one = self.stored[name]
        metadata = replace(one.metadata, annotations={**one.metadata.annotations, **annotations})
        self.stored[name] = replace(one, metadata=metadata)

    async def delete(self, name: str, uid: str) -> None:
        """Delete a revision."""
        self._raise_next_failure()
        if name in self.stored and self.stored[name].metadata.uid == uid:
            del self.stored[name]

    def _raise_next_failure(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


class FakeStatuses:
    """Implements :class:`bayplan.profiles.status_publisher.StatusWriter`.

    Attributes:
        statuses: Statuses by plural and name.
        patches: Plural, name and changed fields of every write, in order; None for removed fields.
        uids: UID of the object of every write.
        failures: Errors of the next writes, one for each.
    """

    def __init__(self) -> None:
        self.statuses: dict[tuple[str, str], dict[str, Any]] = {}
        self.patches: list[tuple[str, str, dict[str, Any]]] = []
        self.uids: list[str] = []
        self.failures: list[ClusterWriteError] = []

    async def replace_status(self, plural: str, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Replace a status."""
        if self.failures:
            raise self.failures.pop(0)
        self.uids.append(uid)
        old = self.statuses.get((plural, name), {})
        changed = {field: value for field, value in status.items() if old.get(field) != value}
        self.patches.append((plural, name, changed | {field: None for field in old if field not in status}))
        self.statuses[plural, name] = dict(status)

    def profile(self, name: str) -> dict[str, Any]:
        """Return the status of a SchedulerProfile."""
        return self.statuses["schedulerprofiles", name]

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """Return a condition of a SchedulerProfile."""
        return condition_of({"status": self.profile(name)}, kind)
