"""The way back to an earlier revision: the spec is written by the user, and the operator makes it live.

Owns which revision is gone back to, whether that would be what was live then, the write and the wait. It must not know
how anything is printed. Why the operator does not do it: it never writes a spec, which belongs to people and to what
applies their repository.

Why a reference to a PluginConfig that has changed is refused: the profile would not become what it was, which is what
whoever goes back in a hurry counts on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from bayplan.kube.api_errors import InvalidRequestError
from bayplan.kube.connection import ApiConnection, ApiRequest
from bayplan.resources.resource_model import API_VERSION
from bayplan.rollout.profile_history import (
    PROFILES,
    Body,
    ProfileHistory,
    condition,
    is_live,
    read_object,
    read_profile,
)
from bayplan.stored_revision import CHANGE_CAUSE, StoredRevision
from scheduler_core.errors import ConflictError, ForbiddenError, NotFoundError, SchedulerCoreError

PLUGIN_CONFIGS = f"/apis/{API_VERSION}/pluginconfigs"
FIELD_MANAGER = "bayplan-rollback"
_POLL_SECONDS = 0.25
_EARLIER_CAUSE = re.compile(r"rollback to revision \d+(?:: )?")


class RollbackError(SchedulerCoreError):
    """The profile cannot be what it was, or did not become it."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """What is to be written.

    Attributes:
        history: Of the profile, as it was read.
        revision: The one to go back to.
        spec: To be written.
    """

    history: ProfileHistory
    revision: StoredRevision
    spec: Mapping[str, Any]

    @property
    def cause(self) -> str:
        """Why, for the annotation."""
        said = _EARLIER_CAUSE.sub("", self.revision.origin.cause)
        return f"rollback to revision {self.revision.number}{f': {said}' if said else ''}"


def target(history: ProfileHistory, number: int | None) -> StoredRevision:
    """Find the revision to go back to.

    Args:
        history: Of the profile.
        number: As asked for; None for the newest good one that is not what the profile says now.

    Raises:
        NotFoundError: There is none.
    """
    if number is not None:
        return history.numbered(number)
    newest = history.revisions[0] if history.revisions else None
    current = history.current if history.is_live else None
    if current is None and newest is not None and newest.origin.spec == history.spec:
        current = newest
    if current is None and newest is not None:
        # What is written was refused or is not judged yet: the last good one is the way back.
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
    """Find out what is to be written.

    Args:
        connection: To the API server.
        history: Of the profile.
        number: Of the revision; None for the previous good one.
        resolved: Whether to write the args of PluginConfigs as they were, in the place of references.

    Raises:
        NotFoundError: There is no such revision.
        RollbackError: It is what the profile says already, or refers to what is no longer as it was.
        ClusterWriteError: The API server could not be asked.
    """
    revision = target(history, number)
    if not resolved:
        await _check_references(connection, history, revision)
    spec = history.spec_of(revision, resolved=resolved)
    if spec == history.spec:
        told = "" if history.is_live else "; it is not live, see: kubectl describe sp " + history.name
        raise RollbackError(
            f'SchedulerProfile "{history.name}" says already what revision {revision.number} said{told}; '
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
            f"revision {revision.number} refers to what is no longer as it was: {'; '.join(problems)}. Give --resolved "
            f'to write the args as they were into SchedulerProfile "{history.name}" itself, or bring back the '
            "PluginConfig first"
        )


async def write(connection: ApiConnection, rollback: Rollback, *, dry_run: bool) -> Body:
    """Write the spec, if nobody else has changed the profile since it was read.

    Args:
        connection: To the API server.
        rollback: What to write.
        dry_run: Let the API server judge it, and change nothing.

    Returns:
        The profile as the API server has it now.

    Raises:
        ConflictError: It was changed meanwhile.
        ForbiddenError: The user may not change it.
        RollbackError: The API server refuses the spec.
        ClusterWriteError: The API server could not be asked.
    """
    name, body = rollback.history.name, rollback.history.body
    metadata = dict(body["metadata"])
    metadata["annotations"] = {**(metadata.get("annotations") or {}), CHANGE_CAUSE: rollback.cause}
    changed = {**body, "metadata": metadata, "spec": rollback.spec}
    params = (
        ("fieldManager", FIELD_MANAGER),
        ("fieldValidation", "Strict"),
        *((("dryRun", "All"),) if dry_run else ()),
    )
    request = ApiRequest("PUT", f"{PROFILES}/{quote(name, safe='')}", msgspec.json.encode(changed), params=params)
    try:
        answer = await connection.request(request)
    except ConflictError as error:
        raise ConflictError(
            f'SchedulerProfile "{name}" was changed while this ran; look at it and run the command again: {error}'
        ) from error
    except InvalidRequestError as error:
        raise RollbackError(
            f"the API server refuses the spec of revision {rollback.revision.number}: {error}"
        ) from error
    except ForbiddenError as error:
        raise ForbiddenError(
            f'you may not change SchedulerProfile "{name}"; ask for the right to update it: {error}'
        ) from error
    written: Body = msgspec.json.decode(answer)
    return written


async def wait_until_live(connection: ApiConnection, written: Body, seconds: float) -> Body:
    """Wait until the operator has made a profile live.

    Args:
        connection: To the API server.
        written: The profile as it was written.
        seconds: Longest wait.

    Returns:
        The profile, live.

    Raises:
        RollbackError: The operator refuses it, somebody has changed it again, or the time is over.
        ClusterWriteError: The API server could not be asked.
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
                    told = condition(body, "Accepted").get("message")
                    raise RollbackError(f"it was written, and the operator refuses it: {told}")
                await asyncio.sleep(_POLL_SECONDS)
                body = await read_profile(connection, name)
    except TimeoutError as error:
        told = str(condition(body, "Ready").get("message") or "the operator has not told anything of it")
        raise RollbackError(
            f"it was written, and is not live after {seconds:g} s; does the operator run? The condition Ready: {told}"
        ) from error
    return body
