"""Rollback to an earlier revision: the user writes its spec, and the operator makes it live.

The operator itself never writes a spec, which belongs to its users and to their GitOps tools. A reference to a
PluginConfig that has changed is rejected: the profile would differ from the revision, which a user in a hurry does not
expect.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from bayplan.kube.http.api_request import InvalidRequestError
from bayplan.kube.http.connection import ApiConnection, ApiRequest
from bayplan.profiles.controller_revision_format import StoredRevision, with_keys, without_keys
from bayplan.profiles.history_listing import (
    PROFILES,
    Body,
    ProfileHistory,
    condition,
    is_live,
    read_object,
    read_profile,
)
from bayplan.resources.resource_model import API_VERSION, CHANGE_CAUSE
from scheduler_core.errors import ConfigError, ConflictError, ForbiddenError, NotFoundError, SchedulerCoreError

PLUGIN_CONFIGS = f"/apis/{API_VERSION}/pluginconfigs"
FIELD_MANAGER = "bayplan-rollback"
_POLL_SECONDS = 0.25
_EARLIER_CAUSE = re.compile(r"rollback to revision \d+(?:: )?")


class RollbackError(SchedulerCoreError):
    """Raised when the profile cannot be what it was, or did not become it."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """The rollback to write.

    Attributes:
        history: History of the profile, as it was read.
        revision: The revision to go back to.
        spec: The spec to write.
    """

    history: ProfileHistory
    revision: StoredRevision
    spec: Mapping[str, Any]

    @property
    def cause(self) -> str:
        """The change cause, for the annotation."""
        earlier = _EARLIER_CAUSE.sub("", self.revision.origin.cause)
        return f"rollback to revision {self.revision.number}{f': {earlier}' if earlier else ''}"


def target(history: ProfileHistory, number: int | None) -> StoredRevision:
    """Find the revision to go back to.

    Args:
        history: History of the profile.
        number: The requested number; None for the newest valid revision that differs from the current spec.

    Raises:
        NotFoundError: There is none.
    """
    if number is not None:
        return history.numbered(number)
    newest = history.revisions[0] if history.revisions else None
    current = history.current if history.is_live else None
    if current is None and newest is not None and newest.origin.spec == without_keys(history.spec):
        current = newest
    if current is None and newest is not None:
        # The current spec is rejected or not validated yet: go back to the last good one.
        return history.current or newest
    for each in history.revisions:
        if current is not None and each.number < current.number:
            return each
    raise NotFoundError(
        f'SchedulerProfile "{history.name}" has no earlier revision to go back to; see: bayplan history {history.name}'
    )


async def plan_rollback(
    connection: ApiConnection, history: ProfileHistory, number: int | None, *, resolved: bool
) -> Rollback:
    """Determine the spec to write.

    Args:
        connection: Connection to the API server.
        history: History of the profile.
        number: Number of the revision; None for the previous valid one.
        resolved: Whether to replace references by the args that their PluginConfigs had.

    Raises:
        NotFoundError: There is no such revision.
        RollbackError: It equals the current spec, refers to a PluginConfig that has changed, or has a client key of an
            extender that is not that of the profile now.
        ClusterWriteError: The request failed.
    """
    revision = target(history, number)
    if not resolved:
        await _check_references(connection, history, revision)
    try:
        spec = with_keys(history.spec_of(revision, resolved=resolved), history.spec)
    except ConfigError as error:
        raise RollbackError(f"revision {revision.number}: {error}") from error
    if spec == history.spec:
        hint = "" if history.is_live else "; it is not live, see: kubectl describe sp " + history.name
        raise RollbackError(
            f'SchedulerProfile "{history.name}" has the spec of revision {revision.number} already{hint}; '
            "nothing was changed"
        )
    return Rollback(history, revision, spec)


async def _check_references(connection: ApiConnection, history: ProfileHistory, revision: StoredRevision) -> None:
    problems = []
    entries = {} if revision.config is None else {entry.name: entry.args for entry in revision.config.plugin_config}
    for name, plugin in revision.origin.references.items():
        try:
            found = (await read_object(connection, PLUGIN_CONFIGS, "PluginConfig", name)).get("spec") or {}
        except NotFoundError:
            problems.append(f'PluginConfig "{name}" no longer exists')
            continue
        if found.get("plugin") != plugin or (found.get("args") or {}) != entries.get(plugin, {}):
            problems.append(f'PluginConfig "{name}" has changed since')
    if problems:
        raise RollbackError(
            f"revision {revision.number} has references that changed: {'; '.join(problems)}. Use --resolved to write "
            f'the args as they were into SchedulerProfile "{history.name}" itself, or restore the PluginConfig first'
        )


async def write(connection: ApiConnection, rollback: Rollback, *, dry_run: bool) -> Body:
    """Write the spec, unless the profile has changed since it was read.

    Args:
        connection: Connection to the API server.
        rollback: What to write.
        dry_run: Let the API server validate it, and change nothing.

    Returns:
        The profile in the API server's response.

    Raises:
        ConflictError: It was changed in the meantime.
        ForbiddenError: The user may not change it.
        RollbackError: The API server rejects the spec.
        ClusterWriteError: The request failed.
    """
    what = f"the spec of revision {rollback.revision.number}"
    change = SpecWrite(rollback.history.body, rollback.spec, rollback.cause, FIELD_MANAGER, what)
    return await write_spec(connection, change, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class SpecWrite:
    """A spec to write into a profile.

    Attributes:
        body: The profile, as it was read.
        spec: The spec.
        cause: The change cause, for the annotation.
        field_manager: Name of the command in ``managedFields``.
        what: The spec in error messages.
    """

    body: Body
    spec: Mapping[str, Any]
    cause: str
    field_manager: str
    what: str


async def write_spec(connection: ApiConnection, change: SpecWrite, *, dry_run: bool) -> Body:
    """Write a spec, unless the profile has changed since it was read; the errors are those of :func:`write`."""
    body, name = change.body, str(change.body["metadata"]["name"])
    metadata = dict(body["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), CHANGE_CAUSE: change.cause}
    changed = {**body, "metadata": metadata, "spec": change.spec}
    params = (
        ("fieldManager", change.field_manager),
        ("fieldValidation", "Strict"),
        *((("dryRun", "All"),) if dry_run else ()),
    )
    request = ApiRequest("PUT", f"{PROFILES}/{quote(name, safe='')}", msgspec.json.encode(changed), params=params)
    try:
        answer = await connection.request(request)
    except ConflictError as error:
        raise ConflictError(
            f'SchedulerProfile "{name}" was changed in the meantime; check it and run the command again: {error}'
        ) from error
    except InvalidRequestError as error:
        raise RollbackError(f"the API server rejects {change.what}: {error}") from error
    except ForbiddenError as error:
        raise ForbiddenError(
            f'you may not change SchedulerProfile "{name}"; request the permission to update it: {error}'
        ) from error
    written: Body = msgspec.json.decode(answer)
    return written


async def wait_until_live(connection: ApiConnection, written: Body, seconds: float) -> Body:
    """Wait until the operator has made a profile live.

    Args:
        connection: Connection to the API server.
        written: The profile as it was written.
        seconds: Timeout.

    Returns:
        The profile, live.

    Raises:
        RollbackError: The operator rejects it, it was changed again, or the time is over.
        ClusterWriteError: The request failed.
    """
    name, generation = str(written["metadata"]["name"]), written["metadata"]["generation"]
    body = written
    try:
        async with asyncio.timeout(seconds):
            while not is_live(body):
                if body["metadata"]["generation"] != generation:
                    raise RollbackError(
                        f'SchedulerProfile "{name}" was changed again; if something applies it from a repository, '
                        "change it there"
                    )
                observed = (body.get("status") or {}).get("observedGeneration") == generation
                if observed and condition(body, "Accepted").get("status") == "False":
                    reason = condition(body, "Accepted").get("message")
                    raise RollbackError(f"it was written, but the operator rejects it: {reason}")
                await asyncio.sleep(_POLL_SECONDS)
                body = await read_profile(connection, name)
    except TimeoutError as error:
        message = str(condition(body, "Ready").get("message") or "the operator has not reported on it")
        raise RollbackError(
            f"it was written, but is not live after {seconds:g} s; is the operator running? Condition Ready: {message}"
        ) from error
    return body
