"""ControllerRevisions and statuses in memory.

Owns what the profile controller writes, and failures that a test orders. It must not decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.kube.controller_revisions import ControllerRevision
from msgspec.structs import replace

from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError


class FakeRevisions:
    """Fulfils :class:`bayplan.profiles.revision_store.RevisionStore`.

    Attributes:
        stored: By name.
        failures: Raised by the next calls that write, one each.
    """

    def __init__(self) -> None:
        self.stored: dict[str, ControllerRevision] = {}
        self.failures: list[ClusterWriteError] = []

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]:
        """Those that carry all labels."""
        found = [one for one in self.stored.values() if labels.items() <= one.metadata.labels.items()]
        return sorted(found, key=lambda one: one.revision)

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        """Store one; a name that is taken is a conflict."""
        self._fail_as_told()
        if revision.metadata.name in self.stored:
            raise ConflictError("taken")
        self.stored[revision.metadata.name] = revision
        return revision

    async def annotate(self, name: str, annotations: Mapping[str, str]) -> None:
        """Set annotations."""
        self._fail_as_told()
        if name not in self.stored:
            raise NotFoundError("gone")
        one = self.stored[name]
        metadata = replace(one.metadata, annotations={**one.metadata.annotations, **annotations})
        self.stored[name] = replace(one, metadata=metadata)

    async def delete(self, name: str, uid: str = "") -> None:
        """Remove one."""
        self._fail_as_told()
        self.stored.pop(name, None)

    def _fail_as_told(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


class FakeStatuses:
    """Fulfils :class:`bayplan.profiles.status_publisher.StatusWriter`.

    Attributes:
        statuses: What stands in the status, by plural and name.
        patches: Every patch in order: plural, name, body.
        failures: Raised by the next patches, one each.
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
        """The status of a SchedulerProfile."""
        return self.statuses["schedulerprofiles", name]

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """A condition of a SchedulerProfile."""
        found: dict[str, Any] = next(one for one in self.profile(name)["conditions"] if one["type"] == kind)
        return found
