"""Writes of PodGroup statuses, queued behind binds with all other writes.

The patch is computed when it is sent, not when it is queued, because a write may wait for a burst of binds or for the
API server, and the status may have changed by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bayplan.kube.custom_resources import ObjectPath
from bayplan.kube.http.connection import (
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    ApiConnection,
    ApiRequest,
)
from bayplan.kube.writes.api_dispatcher import ApiDispatcher
from bayplan.kube.writes.queued_write import Rank, Write
from scheduler_core.model.pod_group import NEWEST_VERSIONS, GroupKey, GroupSource

_PLURAL = "podgroups"


@dataclass(frozen=True, slots=True)
class GroupStatusWrite:
    """Write of a status.

    Attributes:
        key: Key of the group.
        uid: UID of the object.
        make: Returns the patch; called for each attempt to send it. An empty patch is not sent.
        done: Called with the result: None for success, or the error after which the write was given up.
        version: Version of the API in which the object was read; "" for the newest one.
    """

    key: GroupKey
    uid: str
    make: Callable[[], Mapping[str, Any]]
    done: Callable[[Exception | None], None]
    version: str = ""


class GroupStatusWrites:
    """Implementation of :class:`bayplan.gangs.group_status_controller.GroupStatusWriter`.

    Args:
        connection: Connection to the API server.
        dispatcher: Dispatcher that sends the writes.
        timeout: Seconds to wait for a response.
    """

    def __init__(self, connection: ApiConnection, dispatcher: ApiDispatcher, timeout: float = 10.0) -> None:
        self._connection = connection
        self._dispatcher = dispatcher
        self._timeout = timeout

    def write(self, write: GroupStatusWrite) -> None:
        """Queue a write; the dispatcher retries it while the API server is unavailable."""
        self._dispatcher.submit(_QueuedStatus(self._connection, write, self._timeout))


class _QueuedStatus(Write):
    """Status write in the dispatcher's queue."""

    __slots__ = ("_connection", "_timeout", "_write")

    def __init__(self, connection: ApiConnection, write: GroupStatusWrite, timeout: float) -> None:
        key = write.key
        super().__init__((f"PodGroup.{key.source}", key.namespace, key.name, write.uid), Rank.PATCH, None)
        self._connection = connection
        self._write = write
        self._timeout = timeout

    async def carry_out(self) -> None:
        """Send the patch unless it is empty.

        With the UID the native API rejects the patch if the object was recreated. For custom resources the API server
        does not compare the UID in a status patch, so ``make`` returns an empty patch for a recreated object.
        """
        patch = self._write.make()
        if not patch:
            return
        key = self._write.key
        resource = ObjectPath(
            key.source.value, self._write.version or NEWEST_VERSIONS[key.source], _PLURAL, key.name, key.namespace
        )
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
