"""Profiles that the leader creates if they do not exist, from the file of the setting ``initialProfiles``.

Helm cannot install an object together with the definition of its kind. The first installation of the chart leaves its
profile to the operator, and the next upgrade adopts it: the manifest has the labels and annotations of the release, and
the field manager is the tool's, so that the tool can change the fields later without a conflict.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bayplan.kube.http.api_request import APPLY_PATCH, ApiRequest, InvalidRequestError, Lane, path_part
from bayplan.kube.http.connection import METADATA_ONLY, ApiConnection
from bayplan.kube.timing import Backoff
from bayplan.resources.resource_model import API_VERSION, GROUP, VERSION
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.texts import yaml_documents
from scheduler_core.errors import ClusterWriteError, ConfigError, NotFoundError, Problem
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_MANAGED_BY = "app.kubernetes.io/managed-by"
_FIELD_MANAGER = "bayplan"
_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS = 0.5, 30.0


def read_initial_profiles(path: Path) -> list[dict[str, Any]]:
    """Read the manifests of a file.

    Raises:
        ConfigError: The file cannot be read, or contains something else than SchedulerProfiles with names.
    """
    try:
        found = [one for one in yaml_documents.load_all(path.read_text(encoding="utf-8")) if one is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError([Problem("initialProfiles", f"{path} cannot be read: {error}")]) from error
    kind = (API_VERSION, SchedulerProfile.definition.kind)
    for index, one in enumerate(found):
        if not isinstance(one, dict) or (one.get("apiVersion"), one.get("kind")) != kind or not _name(one):
            problem = f"document {index + 1} of {path} must be a SchedulerProfile of {API_VERSION} with metadata.name"
            raise ConfigError([Problem("initialProfiles", problem)])
    return found


class InitialProfiles:
    """Creation of profiles; an existing profile is never changed."""

    def __init__(self, connection: ApiConnection, clock: Clock, profiles: list[dict[str, Any]]) -> None:
        self._connection = connection
        self._clock = clock
        self._profiles = profiles

    async def run(self) -> None:
        """Create those that do not exist; a profile that the API server rejects is logged and left out."""
        for profile in self._profiles:
            await self._create(profile)

    async def _create(self, profile: dict[str, Any]) -> None:
        backoff, last = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS), ""
        while True:
            try:
                await self._create_unless_present(profile)
            except InvalidRequestError as error:
                log.error(  # noqa: TRY400 - the message of the API server is enough
                    "SchedulerProfile %s of initialProfiles is invalid; correct it: %s", _name(profile), error
                )
            except ClusterWriteError as error:
                # A refusal may end, too: a new role binding takes effect after a moment.
                if str(error) != last:
                    last = str(error)
                    log.warning("Cannot create SchedulerProfile %s, retrying: %s", _name(profile), last)
                await self._clock.sleep(backoff.next_delay())
                continue
            return

    async def _create_unless_present(self, profile: dict[str, Any]) -> None:
        path = f"/apis/{GROUP}/{VERSION}/{SchedulerProfile.definition.plural}/{path_part(_name(profile))}"
        try:
            await self._connection.request(ApiRequest("GET", path, lane=Lane.READS, accept=METADATA_ONLY))
        except NotFoundError:
            manager = (profile["metadata"].get("labels") or {}).get(_MANAGED_BY, _FIELD_MANAGER).lower()
            body = msgspec.json.encode(profile)
            params = (("fieldManager", manager),)
            await self._connection.request(
                ApiRequest("PATCH", path, body, content_type=APPLY_PATCH, params=params, accept=METADATA_ONLY)
            )
            log.info("Created SchedulerProfile %s", _name(profile))


def _name(profile: dict[str, Any]) -> str:
    metadata = profile.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
