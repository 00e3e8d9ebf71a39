"""History of each profile's valid revisions, stored in the cluster as ControllerRevisions.

The owner's UID is checked on reading: a profile that was deleted and created again under its name starts without a
history. Content that is applied again gets a new number and its old number is deleted, as with a Deployment: the
history has each content once, and the newest number is live.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from bayplan.kube.custom_resources import ControllerRevision
from bayplan.resources.resource_model import API_VERSION, CHANGE_CAUSE, ObjectMeta, change_cause
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.errors import ClusterWriteError, ConfigError, ConflictError, NotFoundError, Problem
from scheduler_core.model.meta import AnnotatedMeta, OwnerReference

log = logging.getLogger(__name__)

PROFILE_LABEL = "bayplan.dev/profile"
MANAGED: Mapping[str, str] = {"app.kubernetes.io/managed-by": "bayplan"}
_PROFILE, _REVISION, _SPEC, _REFERENCES, _MANAGER = "profile", "revision", "spec", "references", "manager"
_MAX_NAME_PART = 200
_DIGEST = b"key not stored; sha256: "
"""Its length is a multiple of three, so that it is a prefix in base64, too."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a revision.

    Attributes:
        spec: As written; None for a revision that an earlier version of Bayplan stored.
        references: Maps each referenced PluginConfig to the plugin that it configured.
        cause: The change cause as the user wrote it; "" if there is none.
        manager: Field manager of the spec; "" if unknown.
    """

    spec: Mapping[str, Any] | None = None
    references: Mapping[str, str] = field(default_factory=dict)
    cause: str = ""
    manager: str = ""


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """Stored revision; ``created`` is None if unknown, ``config`` if this version of Bayplan cannot read it."""

    name: str
    namespace: str
    uid: str
    number: int
    created: datetime | None
    profile: str
    profile_uid: str
    hash: str
    config: ProfileConfig | None
    origin: Origin

    @property
    def content(self) -> dict[str, Any]:
        """The content in plain JSON types; empty if it cannot be read."""
        return {} if self.config is None else self.config.document()


def origin_of(
    body: Mapping[str, Any], config: ProfileConfig, plugin_configs: Iterable[Mapping[str, Any]] = ()
) -> Origin:
    """Extract from a valid SchedulerProfile what is stored of it.

    Args:
        config: Its resolved content: first the plugins that it configures itself, then those of its references.
        plugin_configs: The PluginConfigs; the last change of one that it references may be the reason of the revision.
    """
    metadata, spec = body["metadata"], dict(body.get("spec") or {})
    names = [reference["name"] for reference in spec.get("pluginConfigRefs") or ()]
    referred = config.plugin_config[len(spec.get("pluginConfig") or ()) :]
    return Origin(
        spec=spec,
        references=dict(zip(names, (entry.name for entry in referred), strict=False)),
        cause=change_cause(metadata),
        manager=_manager(
            [metadata, *(each["metadata"] for each in plugin_configs if each["metadata"]["name"] in names)]
        ),
    )


_COMMANDS = frozenset({"bayplan-rollback", "bayplan-promote"})
"""Field managers of commands that write specs: an edit that only removes fields leaves its manager none of the spec."""


def _manager(changed: Iterable[Mapping[str, Any]]) -> str:
    """Return the field manager of the last change of the specs of some objects, by their metadata; "" if unknown."""
    entries = [
        entry
        for metadata in changed
        for entry in metadata.get("managedFields") or ()
        if not entry.get("subresource")
        and ("f:spec" in (entry.get("fieldsV1") or {}) or entry.get("manager") in _COMMANDS)
    ]

    def order(entry: Mapping[str, Any]) -> tuple[str, bool]:
        return str(entry.get("time", "")), entry.get("manager") in _COMMANDS

    latest = max(entries, key=order, default=None)
    return "" if latest is None else str(latest.get("manager", ""))


def as_controller_revision(
    profile: tuple[str, str], number: int, config: ProfileConfig, origin: Origin
) -> ControllerRevision:
    name, uid = profile
    data: dict[str, Any] = {_REVISION: config.revision(), _PROFILE: without_keys(config.document())}
    if origin.spec is not None:
        data |= {_SPEC: without_keys(origin.spec), _REFERENCES: dict(origin.references), _MANAGER: origin.manager}
    metadata = AnnotatedMeta(
        name=f"{name[:_MAX_NAME_PART].rstrip('-.')}-{config.revision()}-{number}",
        labels=labels_of(name),
        owner_references=(OwnerReference(SchedulerProfile.definition.kind, name, uid, API_VERSION, controller=True),),
        annotations={CHANGE_CAUSE: origin.cause} if origin.cause else {},
    )
    return ControllerRevision(metadata, number, data)


def read_revision(found: ControllerRevision) -> StoredRevision:
    """Parse a stored revision, also one of an earlier version of Bayplan, which stored only the content."""
    meta, data = found.metadata, found.data
    owner = next((one for one in meta.owner_references if one.kind == SchedulerProfile.definition.kind), None)
    config: ProfileConfig | None = None
    if data:
        try:
            config = validate(ProfileConfig, data.get(_PROFILE), _PROFILE)
        except ConfigError as error:
            log.warning("ControllerRevision %s cannot be read by this version and is ignored: %s", meta.name, error)
    spec, references = data.get(_SPEC), data.get(_REFERENCES)
    return StoredRevision(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        number=found.revision,
        created=meta.creation_timestamp,
        profile=owner.name if owner else "",
        profile_uid=owner.uid if owner else "",
        hash=str(data.get(_REVISION) or (config.revision() if config else "")),
        config=config,
        origin=Origin(
            spec=spec if isinstance(spec, Mapping) else None,
            references=references if isinstance(references, Mapping) else {},
            cause=meta.annotations.get(CHANGE_CAUSE, ""),
            manager=str(data.get(_MANAGER) or ""),
        ),
    )


def without_keys(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a profile's content with the digest of each extender's client key in place of the key."""
    copied = deepcopy(dict(spec))
    for _, tls in _tls_configs(copied):
        if tls.get("keyData") and not _is_digest(tls["keyData"]):
            tls["keyData"] = _digest(tls["keyData"])
    return copied


def with_keys(stored: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a content with the client keys of extenders; raises ConfigError if a key has changed."""
    keys = {_digest(tls["keyData"]): tls["keyData"] for _, tls in _tls_configs(spec) if tls.get("keyData")}
    copied = deepcopy(dict(stored))
    for number, tls in _tls_configs(copied):
        if _is_digest(tls.get("keyData")):
            key = keys.get(tls["keyData"])
            if key is None:
                text = "is not stored with revisions, and the profile has another key now; use keyFile"
                raise ConfigError([Problem(f"extenders[{number}].tlsConfig.keyData", text)])
            tls["keyData"] = key
    return copied


def _tls_configs(spec: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    extenders = spec.get("extenders")
    for number, extender in enumerate(extenders if isinstance(extenders, list) else ()):
        tls = extender.get("tlsConfig") if isinstance(extender, dict) else None
        if isinstance(tls, dict):
            yield number, tls


def _digest(key: object) -> str:
    # In base64, as the field requires.
    return base64.b64encode(_DIGEST + hashlib.sha256(str(key).encode()).hexdigest().encode()).decode()


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and text.startswith(base64.b64encode(_DIGEST).decode())


def labels_of(profile: str) -> dict[str, str]:
    return {**MANAGED, PROFILE_LABEL: _label_value(profile)}


def _label_value(name: str) -> str:
    """Convert a profile's name to a label value; names longer than 63 characters end in a hash."""
    if len(name) <= 63:
        return name
    return f"{name[:46].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


REVISION_HISTORY_LIMIT = 10
_MAX_CREATIONS = 8
"""Attempts to store one revision before the error is reported; between them the numbers double their distance."""


class RevisionStore(Protocol):
    """Store of ControllerRevisions; see :class:`bayplan.kube.custom_resources.ControllerRevisions`."""

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]: ...
    async def create(self, revision: ControllerRevision) -> ControllerRevision: ...
    async def annotate(self, name: str, uid: str, annotations: Mapping[str, str]) -> None: ...
    async def delete(self, name: str, uid: str) -> None: ...


class RevisionHistory:
    def __init__(self, store: RevisionStore) -> None:
        self._store = store
        self._stored: dict[str, StoredRevision] = {}
        self._waiting: dict[str, tuple[ObjectMeta, ProfileConfig, Origin]] = {}
        self._causes: dict[str, tuple[str, str]] = {}

    async def load(self) -> None:
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
        """Queue the change cause of a live revision for the next :meth:`save`, if it was set after the edit."""
        stored = (one for one in self.of(profile_uid) if one.hash == revision)
        # A rollback from a rejected spec to the revision that is still live is no cause of that revision.
        if cause and any(
            one.origin.cause != cause and not f"{cause}:".startswith(f"rollback to revision {one.number}:")
            for one in stored
        ):
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
                await self._store.delete(one.name, one.uid)
                self._stored.pop(one.name, None)
            else:
                newer.add(one.hash)

    async def _write_cause(self, profile_uid: str) -> None:
        revision, cause = self._causes[profile_uid]
        for one in self.of(profile_uid):
            if one.hash == revision and one.origin.cause != cause:
                try:
                    await self._store.annotate(one.name, one.uid, {CHANGE_CAUSE: cause})
                except NotFoundError:
                    # Deleted by a user; it is stored again when it goes live again.
                    self._stored.pop(one.name, None)
                else:
                    self._stored[one.name] = replace(one, origin=replace(one.origin, cause=cause))
        if self._causes.get(profile_uid) == (revision, cause):
            del self._causes[profile_uid]
