"""Writes of PodGroup statuses, queued behind binds with all other writes, and which process writes them.

The patch is computed when it is sent, not when it is queued, because a write may wait for a burst of binds or for the
API server, and the status may have changed by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from bayplan.kube.custom_resources import ObjectPath
from bayplan.kube.http.connection import (
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    ApiConnection,
    ApiRequest,
)
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, Rank, Write
from scheduler_core.model.pod_group import NEWEST_VERSIONS, GroupKey, GroupSource
from scheduler_core.queueing.gang_members import Gang

_PLURAL = "podgroups"


class OtherProcesses(Struct, frozen=True):
    """Other processes that write statuses of PodGroups; they communicate only through the objects.

    Only one process writes the status of a group if several processes serve different profiles, because only the
    process whose queue holds the members has their counts and the reasons why they wait.

    Attributes:
        status_of: Returns the status of an object as last received; None for an unknown object.
        serves: Returns whether this process serves a scheduler name; None if no process does.
    """

    status_of: Callable[[GroupKey], Mapping[str, Any] | None]
    serves: Callable[[str], bool | None]

    def write(self, gang: Gang | None) -> bool:
        """Return whether another process writes the status of a gang.

        The first schedulerName of its members, in alphabetical order, that any process serves decides. If there is
        none, every process writes the status, since all compute the same.
        """
        names = set() if gang is None else {pod.spec.scheduler_name for pod in gang.pods.values()}
        served = [self.serves(name) for name in sorted(names)]
        return next((not is_here for is_here in served if is_here is not None), False)


@dataclass(frozen=True, slots=True)
class GroupStatusWrite:
    """Write of a status.

    Attributes:
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
