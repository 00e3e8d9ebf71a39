"""Writes of PodGroup statuses, queued behind binds with all other writes.

Owns where the three APIs keep a PodGroup and how each takes a patch of its status. Must not know what is told. Why the
patch is made when it is sent: a write may wait behind a burst of binds or for the API server to come back, and what it
would have said is old by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bayplan.kube.api_dispatcher import ApiDispatcher
from bayplan.kube.connection import (
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    ApiConnection,
    ApiRequest,
)
from bayplan.kube.queued_write import Rank, Write
from bayplan.kube.status_writes import CustomResource
from scheduler_core.model.pod_group import GroupKey, GroupSource

VERSIONS: Mapping[GroupSource, str] = {
    GroupSource.BAYPLAN: "v1alpha1",
    GroupSource.SCHEDULER_PLUGINS: "v1alpha1",
    GroupSource.NATIVE: "v1alpha2",
}
"""The version of each API in which statuses are written and events name the object."""
_PLURAL = "podgroups"


@dataclass(frozen=True, slots=True)
class GroupStatusWrite:
    """A status to be written.

    Attributes:
        key: Of which group.
        uid: Of which object of that name.
        make: Called when it is sent, at each try: the patch as it should be then, empty for nothing to write.
        done: Told how it ended: None for well, or why it was given up.
    """

    key: GroupKey
    uid: str
    make: Callable[[], Mapping[str, Any]]
    done: Callable[[Exception | None], None]


class GroupStatusWrites:
    """Fulfils :class:`bayplan.gangs.group_controller.GroupStatusWriter`.

    Args:
        connection: To the API server.
        dispatcher: Carries them out.
        timeout: Seconds for one answer.
    """

    def __init__(self, connection: ApiConnection, dispatcher: ApiDispatcher, timeout: float = 10.0) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._timeout = timeout

    def write(self, write: GroupStatusWrite) -> None:
        """Queue a write; the dispatcher tries it again while the API server is away."""
        self._dispatcher.submit(_QueuedStatus(self._connection, write, self._timeout))


class _QueuedStatus(Write):
    """A status in the dispatcher's queue."""

    __slots__ = ("_connection", "_timeout", "_write")

    def __init__(self, connection: ApiConnection, write: GroupStatusWrite, timeout: float) -> None:
        key = write.key
        super().__init__((f"PodGroup.{key.source}", key.namespace, key.name, write.uid), Rank.PATCH, None)
        self._connection = connection
        self._write = write
        self._timeout = timeout

    async def carry_out(self) -> None:
        """Send the patch, if there still is a difference.

        The UID keeps the native API from taking it for a later object of that name. Of custom resources the API server
        compares no UID in a patch of a status; there only whoever makes the patch keeps it from a later object.
        """
        patch = self._write.make()
        if not patch:
            return
        key = self._write.key
        resource = CustomResource(key.source.value, VERSIONS[key.source], _PLURAL, key.name, key.namespace)
        is_native = key.source is GroupSource.NATIVE
        await self._connection.request(
            ApiRequest(
                "PATCH",
                f"{resource.path}/status",
                msgspec.json.encode({"metadata": {"uid": self._write.uid}, "status": patch}),
                content_type=STRATEGIC_MERGE_PATCH if is_native else MERGE_PATCH,
                timeout=self._timeout,
                accept=METADATA_ONLY,
            )
        )

    def ended(self, error: Exception | None) -> None:
        self._write.done(error)
