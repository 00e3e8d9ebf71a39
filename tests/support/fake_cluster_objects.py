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

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]:
        """Return the revisions that have all labels."""
        found = [one for one in self.stored.values() if labels.items() <= one.metadata.labels.items()]
        return sorted(found, key=lambda one: one.revision)

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        """Store a revision; an existing name is a conflict."""
        self._raise_next_failure()
        if revision.metadata.name in self.stored:
            raise ConflictError("taken")
        self.stored[revision.metadata.name] = revision
        return revision

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a revision."""
        self._raise_next_failure()
        if name not in self.stored:
            raise NotFoundError("gone")
        one = self.stored[name]
        metadata = replace(one.metadata, annotations={**one.metadata.annotations, **annotations})
        self.stored[name] = replace(one, metadata=metadata)

    async def delete(self, name: str, uid: str = "") -> None:
        """Delete a revision."""
        self._raise_next_failure()
        self.stored.pop(name, None)

    def _raise_next_failure(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


class FakeStatuses:
    """Implements :class:`bayplan.profiles.status_publisher.StatusWriter`.

    Attributes:
        statuses: Statuses by plural and name.
        patches: Plural, name and body of every patch, in order.
        failures: Errors of the next patches, one for each.
    """

    def __init__(self) -> None:
        self.statuses: dict[tuple[str, str], dict[str, Any]] = {}
        self.patches: list[tuple[str, str, dict[str, Any]]] = []
        self.failures: list[ClusterWriteError] = []

    async def patch_status(self, plural: str, name: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch."""
        if self.failures:
            raise self.failures.pop(0)
        self.patches.append((plural, name, dict(patch)))
        status = self.statuses.setdefault((plural, name), {})
        status.update(patch)
        for field in [field for field, value in status.items() if value is None]:
            del status[field]

    def profile(self, name: str) -> dict[str, Any]:
        """Return the status of a SchedulerProfile."""
        return self.statuses["schedulerprofiles", name]

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """Return a condition of a SchedulerProfile."""
        return condition_of({"status": self.profile(name)}, kind)
