"""The stored revisions of a profile: their list, the differences of their specs, rollback, and promotion of a shadow.

The user writes the spec, and the operator makes it live; the operator itself never writes a spec, which belongs to its
users and to their GitOps tools. A reference to a PluginConfig that has changed is rejected: the profile would differ
from the revision, which a user in a hurry does not expect.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from bayplan.kube.custom_resources import ControllerRevisions
from bayplan.kube.http.api_request import InvalidRequestError
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.profiles.revision_store import StoredRevision, labels_of, read_revision, with_keys, without_keys
from bayplan.resources.resource_model import API_VERSION, CHANGE_CAUSE, change_cause
from bayplan.resources.scheduler_profile import SHADOW_FIELDS
from bayplan.texts.document_formats import printable_yaml
from bayplan.texts.yaml_documents import list_at, mapping_at, value_at
from scheduler_core.errors import (
    ClusterWriteError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Problem,
    SchedulerCoreError,
)

_WIDTH = 120
_SHOWN = 48
_ABSENT = object()


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """List each difference, such as ``podMaxBackoffSeconds: 10 → 20``, sorted by the fields' paths."""
    before, after = dict(_leaves(old, "")), dict(_leaves(new, ""))
    found = []
    for path in sorted({*before, *after}):
        was, now = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if was is _ABSENT:
            found.append(f"+{path}{_of(now)}")
        elif now is _ABSENT:
            found.append(f"-{path}{_of(was)}")
        elif was != now:
            found.append(f"{path}: {_shown(was)} → {_shown(now)}")
    if not found and old != new:
        found.append("order of entries")
    return found


def changes_summary(differences: list[str]) -> str:
    """Return the first difference and the number of the others; ``nothing`` for none."""
    if not differences:
        return "nothing"
    return differences[0] if len(differences) == 1 else f"{differences[0]} and {len(differences) - 1} more"


def unified_diff(old: Mapping[str, Any], new: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Compare line by line, like ``diff -u``; empty for equal specs."""
    before, after = (as_yaml(dict(spec)).splitlines(keepends=True) for spec in (old, new))
    return "".join(difflib.unified_diff(before, after, *names))


def as_yaml(document: Any) -> str:
    return printable_yaml(document, _WIDTH)


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping) and (node or not path):
        for name, value in node.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    elif isinstance(node, list | tuple) and node and all(_name_of(entry) for entry in node):
        for entry in node:
            rest = {key: value for key, value in entry.items() if key not in ("name", "urlPrefix")}
            yield from _leaves(rest or None, f"{path}[{_name_of(entry)}]")
    else:
        yield path, node


def _name_of(entry: Any) -> str:
    """Return the name of a list entry; empty if it has none."""
    if not isinstance(entry, Mapping):
        return ""
    return str(entry.get("name") or entry.get("urlPrefix") or "")


def _of(value: Any) -> str:
    return "" if value is None else f": {_shown(value)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


PROFILES = f"/apis/{API_VERSION}/schedulerprofiles"
Body = Mapping[str, Any]


_MIN_HASH_DIGITS = 4
_is_revision = re.compile(r"[1-9][0-9]*|[0-9a-f]{4,8}").fullmatch


def is_revision(text: str) -> bool:
    """Return whether a text may name a revision: a number, or the hash or its first digits."""
    return _is_revision(text) is not None


@dataclass(frozen=True, slots=True)
class ProfileHistory:
    body: Body
    revisions: tuple[StoredRevision, ...]

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping_at(self.body, "spec")

    @property
    def current(self) -> StoredRevision | None:
        """The live revision; None if there is none, or it is not stored."""
        live = value_at(self.body, "status", "activeRevision")
        return next((each for each in self.revisions if live and each.hash == live), None)

    @property
    def is_live(self) -> bool:
        return is_live(self.body)

    def named(self, revision: str) -> StoredRevision:
        """Return a revision by its number, as ``bayplan history`` lists it, or by its hash, as kubectl prints it.

        Args:
            revision: A number, or a hash or its first four or more digits.

        Raises:
            NotFoundError: It is not stored, or several hashes begin so.
        """
        found = [each for each in self.revisions if str(each.number) == revision]
        if not found and len(revision) >= _MIN_HASH_DIGITS:
            found = [each for each in self.revisions if each.hash.startswith(revision)]
        if len(found) == 1:
            return found[0]
        stored = ", ".join(f"{each.number} ({each.hash})" for each in reversed(self.revisions)) or "none"
        problem = f"several revisions {revision}" if found else f"no revision {revision}"
        raise NotFoundError(f'SchedulerProfile "{self.name}" has {problem}; existing: {stored}; see: bayplan history')

    def spec_of(self, revision: StoredRevision, *, resolved: bool = False) -> dict[str, Any]:
        """Return the spec of a revision, with digests in place of the client keys of extenders.

        Args:
            resolved: Whether to replace references by the args that their PluginConfigs had; always so for a revision
                that an earlier version of Bayplan stored.

        Raises:
            ClusterWriteError: This version of Bayplan cannot read it.
        """
        if revision.origin.spec is not None and not resolved:
            return dict(revision.origin.spec)
        if revision.config is None:
            raise ClusterWriteError(
                f"revision {revision.number} was stored by a version of Bayplan that this one cannot read; "
                "use that version, or another revision"
            )
        spec = _without_versions(revision.content)
        if "schedulerName" not in self.spec and spec.get("schedulerName") == self.name:
            del spec["schedulerName"]
        return spec


def _without_versions(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != "pluginVersions"}


def _differs(one: StoredRevision, other: StoredRevision) -> bool:
    return one.config is None or _without_versions(one.content) != _without_versions(other.content)


def condition(body: Body, kind: str) -> Mapping[str, Any]:
    """Return a condition of an object; empty if it has none of that type."""
    return next((each for each in list_at(body, "status", "conditions") if each.get("type") == kind), {})


def is_live(body: Body) -> bool:
    """Return whether the operator has made the current spec of a SchedulerProfile live."""
    is_accepted = condition(body, "Accepted").get("status") == "True"
    ready = condition(body, "Ready")
    return _is_observed(body) and is_accepted and (ready.get("status"), ready.get("reason")) == ("True", "Live")


def _is_observed(body: Body) -> bool:
    """Return whether the operator has validated the current spec of an object."""
    return bool(value_at(body, "status", "observedGeneration") == body["metadata"].get("generation"))


async def read_profile(connection: ApiConnection, name: str) -> Body:
    """Read a SchedulerProfile; raises NotFoundError or ForbiddenError with what to do."""
    return await read_object(connection, PROFILES, "SchedulerProfile", name)


async def read_object(connection: ApiConnection, collection: str, kind: str, name: str) -> Body:
    """Read one cluster-scoped object; raises the errors of :func:`read_profile`."""
    request = ApiRequest("GET", f"{collection}/{quote(name, safe='')}", lane=Lane.READS)
    try:
        answer = await connection.request(request)
    except NotFoundError as error:
        listing = f"kubectl get {collection.rpartition('/')[2]}"
        raise NotFoundError(
            f'there is no {kind} "{name}", or the API server does not serve this resource; see: {listing}'
        ) from error
    except ForbiddenError as error:
        raise ForbiddenError(f'you may not read {kind} "{name}"; request the permission to get it: {error}') from error
    body: Body = msgspec.json.decode(answer)
    return body


async def read_history(
    connection: ApiConnection, name: str, namespace: str | None, own_namespace: str
) -> ProfileHistory:
    """Read a profile and its stored revisions.

    Args:
        namespace: Namespace of the revisions; None searches all namespaces.
        own_namespace: Searched if the user may not search all.

    Raises:
        ConfigError: Revisions are stored in several namespaces, so that one must be named.
    """
    body = await read_profile(connection, name)
    labels = labels_of(name)
    try:
        found = await ControllerRevisions(connection, namespace or "").list(labels)
    except ForbiddenError as error:
        if namespace is not None:
            raise ForbiddenError(_may_not_list(f"in namespace {namespace}", error)) from error
        try:
            found = await ControllerRevisions(connection, own_namespace).list(labels)
        except ForbiddenError as own_error:
            raise ForbiddenError(_may_not_list(f"in all namespaces or in {own_namespace}", own_error)) from own_error
    uid = body["metadata"].get("uid")
    stored = [each for each in map(read_revision, found) if each.profile_uid == uid]
    namespaces = sorted({each.namespace for each in stored})
    if len(namespaces) > 1:
        message = f"several operators store revisions of this profile, in {', '.join(namespaces)}; name one of them"
        raise ConfigError([Problem("--revision-namespace", message)])
    return ProfileHistory(body, tuple(sorted(stored, key=lambda each: -each.number)))


def _may_not_list(where: str, error: ForbiddenError) -> str:
    return (
        f"you may not list controllerrevisions {where}; name the operator's namespace with --revision-namespace, or "
        f"request the permission to list them there: {error}"
    )


PLUGIN_CONFIGS = f"/apis/{API_VERSION}/pluginconfigs"
_POLL_SECONDS = 0.25
_EARLIER_CAUSE = re.compile(r"rollback to revision \d+(?:: )?")


class RollbackError(SchedulerCoreError):
    """Raised when the profile cannot be what it was, or did not become it."""


@dataclass(frozen=True, slots=True)
class SpecWrite:
    """A spec to write into a profile, with the name of the command for ``managedFields``."""

    body: Body
    spec: Mapping[str, Any]
    cause: str
    field_manager: str
    what: str


@dataclass(frozen=True, slots=True)
class Rollback:
    history: ProfileHistory
    revision: StoredRevision
    spec: Mapping[str, Any]

    @property
    def cause(self) -> str:
        earlier = _EARLIER_CAUSE.sub("", self.revision.origin.cause)
        return f"rollback to revision {self.revision.number}{f': {earlier}' if earlier else ''}"

    @property
    def change(self) -> SpecWrite:
        what = f"the spec of revision {self.revision.number}"
        return SpecWrite(self.history.body, self.spec, self.cause, "bayplan-rollback", what)


def target(history: ProfileHistory, revision: str | None) -> StoredRevision:
    """Return a revision; for None the newest valid one that differs from the current spec, or NotFoundError."""
    if revision is not None:
        return history.named(revision)
    newest = history.revisions[0] if history.revisions else None
    current = history.current if history.is_live else None
    if current is None and newest is not None and newest.origin.spec == without_keys(history.spec):
        current = newest
    if current is None and newest is not None:
        # The current spec is rejected or not validated yet: go back to the last good one.
        return history.current or newest
    for each in history.revisions:
        # A revision that differs by the versions of plugins alone has the same spec.
        if current is not None and each.number < current.number and _differs(each, current):
            return each
    raise NotFoundError(
        f'SchedulerProfile "{history.name}" has no earlier revision to go back to; see: bayplan history {history.name}'
    )


async def plan_rollback(
    connection: ApiConnection, history: ProfileHistory, chosen: str | None, *, resolved: bool
) -> Rollback:
    """Determine the spec to write.

    Args:
        chosen: Number or hash of the revision; None for the previous valid one.
        resolved: Whether to replace references by the args that their PluginConfigs had.

    Raises:
        RollbackError: It equals the current spec, refers to a PluginConfig that has changed, or has a client key of an
            extender that is not that of the profile now.
    """
    revision = target(history, chosen)
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


async def write_spec(connection: ApiConnection, change: SpecWrite, *, dry_run: bool) -> Body:
    """Write a spec, unless the profile has changed since it was read; a dry run only lets the API server validate it.

    Raises:
        ConflictError: It was changed in the meantime.
        ForbiddenError: The user may not change it.
        RollbackError: The API server rejects the spec.
        ClusterWriteError: The request failed.
    """
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
    """Wait until a profile is live; raises RollbackError if it is rejected, is changed again, or that takes long."""
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
                if _is_observed(body) and condition(body, "Accepted").get("status") == "False":
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


class PromotionError(RollbackError):
    """Raised when a shadow cannot be promoted."""


@dataclass(frozen=True, slots=True)
class Promotion:
    shadow: Body
    live: Body
    spec: Mapping[str, Any]

    @property
    def shadow_name(self) -> str:
        return str(self.shadow["metadata"]["name"])

    @property
    def live_name(self) -> str:
        return str(self.live["metadata"]["name"])

    @property
    def cause(self) -> str:
        earlier = change_cause(self.shadow["metadata"])
        return f"promote {self.shadow_name}{f': {earlier}' if earlier else ''}"

    @property
    def change(self) -> SpecWrite:
        return SpecWrite(self.live, self.spec, self.cause, "bayplan-promote", f'the spec of "{self.shadow_name}"')

    @property
    def evidence(self) -> str:
        """What the shadow has compared so far."""
        found = mapping_at(self.shadow, "status", "shadow")
        compared, agreed, differed = (found.get(name, 0) for name in ("compared", "agreed", "differed"))
        return f"{compared} decisions compared: {agreed} agree, {differed} differ"


async def plan_promotion(connection: ApiConnection, name: str) -> Promotion:
    """Determine the spec to write.

    Raises:
        NotFoundError: There is no such profile, or no live profile of its scheduler name.
        PromotionError: The profile is no shadow, is not valid, or equals the live profile.
    """
    shadow = await read_profile(connection, name)
    spec: Mapping[str, Any] = shadow.get("spec") or {}
    shadow_of = spec.get("shadowOf")
    if not shadow_of:
        raise PromotionError(f'SchedulerProfile "{name}" is no shadow: it has no spec.shadowOf; nothing was changed')
    accepted = condition(shadow, "Accepted")
    seen = _is_observed(shadow)
    if not seen or accepted.get("status") != "True":
        reason = accepted.get("message") if seen else "the operator has not validated its current spec"
        raise PromotionError(f'SchedulerProfile "{name}" is not valid, and nothing was changed: {reason}')
    live = await _live_profile(connection, str(shadow_of))
    written: Mapping[str, Any] = live.get("spec") or {}
    promoted = {each: value for each, value in spec.items() if each not in SHADOW_FIELDS}
    if "schedulerName" in written:
        promoted["schedulerName"] = written["schedulerName"]
    if promoted == dict(written):
        live_name = live["metadata"]["name"]
        raise PromotionError(f'SchedulerProfile "{live_name}" has the spec of "{name}" already; nothing was changed')
    return Promotion(shadow, live, promoted)


async def _live_profile(connection: ApiConnection, scheduler_name: str) -> Body:
    """Return the profile that holds a scheduler name; of several that claim it, the oldest."""
    answer = await connection.request(ApiRequest("GET", PROFILES, lane=Lane.READS))
    bodies: list[Body] = msgspec.json.decode(answer).get("items") or []
    found = [
        body for body in bodies if _claims(body) == scheduler_name and not (body.get("spec") or {}).get("shadowOf")
    ]
    if not found:
        raise NotFoundError(
            f'there is no live SchedulerProfile of scheduler name "{scheduler_name}"; correct spec.shadowOf, or create '
            "the profile"
        )
    return min(found, key=lambda body: (body["metadata"]["creationTimestamp"], body["metadata"]["name"]))


def _claims(body: Body) -> str:
    spec = body.get("spec") or {}
    return "" if spec.get("shadowOf") else str(spec.get("schedulerName") or body["metadata"]["name"])
