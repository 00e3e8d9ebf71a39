"""Good revisions of profiles, kept in the cluster so that they survive this process.

Owns their form as ControllerRevisions: name, labels, owner, number, data. It must not know when a revision is good.
Why the owner's UID is checked on reading: a profile that was deleted and created again under its name starts without
a past.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bayplan.kube.controller_revisions import ControllerRevision
from bayplan.resources.resource_model import API_VERSION, ObjectMeta
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, ConflictError
from scheduler_core.model.meta import ObjectMeta as RevisionMeta
from scheduler_core.model.meta import OwnerReference

log = logging.getLogger(__name__)

KEPT_REVISIONS = 10
PROFILE_LABEL = "bayplan.dev/profile"
_OURS: Mapping[str, str] = {"app.kubernetes.io/managed-by": "bayplan"}
_PROFILE = "profile"
_REVISION = "revision"


class RevisionStore(Protocol):
    """Where ControllerRevisions are; see :class:`bayplan.kube.controller_revisions.ControllerRevisions`."""

    async def list(self, labels: Mapping[str, str]) -> list[ControllerRevision]:
        """Those that carry all labels, oldest first."""

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        """Create one."""

    async def delete(self, name: str, uid: str = "") -> None:
        """Delete one."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A ControllerRevision as it is known."""

    name: str
    number: int
    profile: str
    profile_uid: str
    config: ProfileConfig | None


class RevisionHistory:
    """What is kept, and what waits to be."""

    def __init__(self, store: RevisionStore) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}
        self._waiting: dict[str, tuple[ObjectMeta, ProfileConfig]] = {}

    async def load(self) -> None:
        """Read all that is kept.

        Raises:
            ClusterWriteError: The API server could not be asked.
        """
        found = await self._store.list(_OURS)
        self._kept = {kept.name: kept for kept in map(_read, found)}

    def last_good(self, profile_uid: str) -> list[ProfileConfig]:
        """The kept revisions of a profile that can be read, newest first."""
        kept = sorted(self._of(profile_uid), key=lambda one: -one.number)
        return [one.config for one in kept if one.config is not None]

    def note(self, profile: ObjectMeta, config: ProfileConfig) -> None:
        """Have a revision that went live kept by the next :meth:`save`."""
        self._waiting[profile.uid] = (profile, config)

    async def save(self) -> None:
        """Write what waits, and delete what is too old; what fails waits on.

        Raises:
            ClusterWriteError: The API server refused, or could not be asked.
        """
        while self._waiting:
            uid, (profile, config) = next(iter(self._waiting.items()))
            newest = max(self._of(uid), key=lambda one: one.number, default=None)
            if newest is None or newest.config is None or newest.config.revision() != config.revision():
                try:
                    await self._create(profile, config)
                except ConflictError:
                    # An answer was lost, or another instance was faster: the number is chosen anew.
                    await self.load()
                    continue
            if self._waiting.get(uid) == (profile, config):
                del self._waiting[uid]
            await self._delete_old(uid)

    def _of(self, profile_uid: str) -> list[_Kept]:
        return [kept for kept in self._kept.values() if kept.profile_uid == profile_uid]

    async def _create(self, profile: ObjectMeta, config: ProfileConfig) -> None:
        number = 1 + max((kept.number for kept in self._kept.values() if kept.profile == profile.name), default=0)
        owner = OwnerReference(
            SchedulerProfile.definition.kind, profile.name, profile.uid, API_VERSION, controller=True
        )
        metadata = RevisionMeta(
            name=f"{profile.name[:200].rstrip('-.')}-{config.revision()}-{number}",
            labels={**_OURS, PROFILE_LABEL: _label_value(profile.name)},
            owner_references=(owner,),
        )
        data = {_REVISION: config.revision(), _PROFILE: config.document()}
        kept = _read(await self._store.create(ControllerRevision(metadata, number, data)))
        self._kept[metadata.name] = _Kept(metadata.name, number, profile.name, profile.uid, kept.config or config)

    async def _delete_old(self, profile_uid: str) -> None:
        kept = sorted(self._of(profile_uid), key=lambda one: -one.number)
        for old in kept[KEPT_REVISIONS:]:
            await self._store.delete(old.name)
            del self._kept[old.name]


def _read(found: ControllerRevision) -> _Kept:
    owner = next((one for one in found.metadata.owner_references if one.kind == SchedulerProfile.definition.kind), None)
    config: ProfileConfig | None = None
    if found.data:
        try:
            config = validate(ProfileConfig, found.data.get(_PROFILE), _PROFILE)
        except ConfigError as error:
            log.warning(
                "ControllerRevision %s is of no use to this version and is passed over: %s", found.metadata.name, error
            )
    return _Kept(
        name=found.metadata.name,
        number=found.revision,
        profile=owner.name if owner else "",
        profile_uid=owner.uid if owner else "",
        config=config,
    )


def _label_value(name: str) -> str:
    """A profile's name as a label's value; names longer than 63 characters end in a hash."""
    if len(name) <= 63:
        return name
    return f"{name[:46].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
