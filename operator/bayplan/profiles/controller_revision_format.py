"""Form of a profile's revision as a ControllerRevision.

Viewers of the namespace can read ControllerRevisions, so the client keys of extenders (``tlsConfig.keyData``) are not
stored: their digests stand for them, and :func:`with_keys` puts the keys of the profile in their places.

Both the spec as written and its resolved content are stored: a rollback restores the references as written, while what
was live must not change with the objects that it refers to.

    data:
      revision: 3db7d32c            hash of the content
      profile: {...}                the content: references resolved, as a framework instance was built from it
      spec: {...}                   as written in the SchedulerProfile
      references: {pack: NodeResourcesFit}    referenced PluginConfigs, and the plugin of each
      manager: kubectl-client-side-apply      field manager of the spec, from managedFields
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bayplan.kube.custom_resources import ControllerRevision
from bayplan.resources.resource_model import API_VERSION, CHANGE_CAUSE, change_cause
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, Problem
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
    """Stored revision.

    Attributes:
        name: Name of the ControllerRevision.
        namespace: Namespace of the ControllerRevision.
        number: Higher is newer.
        created: When it was stored; None if unknown.
        profile: Name of its SchedulerProfile.
        profile_uid: UID of its SchedulerProfile.
        hash: Hash of the content.
        config: The content; None if this version of Bayplan cannot read it.
        origin: Source of the revision.
    """

    name: str
    namespace: str
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


def origin_of(body: Mapping[str, Any], config: ProfileConfig) -> Origin:
    """Extract from a valid SchedulerProfile what is stored of it.

    Args:
        body: The object.
        config: Its resolved content: first the plugins that it configures itself, then those of its references.
    """
    metadata, spec = body["metadata"], dict(body.get("spec") or {})
    names = [reference["name"] for reference in spec.get("pluginConfigRefs") or ()]
    referred = config.plugin_config[len(spec.get("pluginConfig") or ()) :]
    return Origin(
        spec=spec,
        references=dict(zip(names, (entry.name for entry in referred), strict=False)),
        cause=change_cause(metadata),
        manager=_manager(metadata),
    )


def _manager(metadata: Mapping[str, Any]) -> str:
    entries = [
        entry
        for entry in metadata.get("managedFields") or ()
        if not entry.get("subresource") and "f:spec" in (entry.get("fieldsV1") or {})
    ]
    latest = max(entries, key=lambda entry: str(entry.get("time", "")), default=None)
    return "" if latest is None else str(latest.get("manager", ""))


def as_controller_revision(
    profile: tuple[str, str], number: int, config: ProfileConfig, origin: Origin
) -> ControllerRevision:
    """Make the object that stores a revision.

    Args:
        profile: Name and UID of its SchedulerProfile.
        number: Its number.
        config: Its content.
        origin: Its source.
    """
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
    """Parse a stored revision, also one of an earlier version of Bayplan, which stored only the content.

    Returns:
        The revision; without content if this version cannot read it.
    """
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
    """Return a copy of a stored content with the client keys of extenders.

    Args:
        stored: Content as it was stored.
        spec: Content of the profile now, which has the keys.

    Raises:
        ConfigError: The profile has another key now, or none.
    """
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
    """Return the labels that select the revisions of a profile."""
    return {**MANAGED, PROFILE_LABEL: _label_value(profile)}


def _label_value(name: str) -> str:
    """Convert a profile's name to a label value; names longer than 63 characters end in a hash."""
    if len(name) <= 63:
        return name
    return f"{name[:46].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
