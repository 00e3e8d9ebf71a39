"""The stored revisions of a profile, read with the rights of the user.

All namespaces are searched first: revisions are in the operator's namespace, whose name users often do not
have. A user who may not list them everywhere names the namespace, or has it in the context of the kubeconfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from bayplan.kube.custom_resources import ControllerRevisions
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.profiles.controller_revision_format import StoredRevision, labels_of, read_revision
from bayplan.resources.resource_model import API_VERSION
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, Problem

PROFILES = f"/apis/{API_VERSION}/schedulerprofiles"
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProfileHistory:
    """A profile and its revisions.

    Attributes:
        body: The SchedulerProfile.
        revisions: Its stored revisions, newest first.
    """

    body: Body
    revisions: tuple[StoredRevision, ...]

    @property
    def name(self) -> str:
        """The profile's name."""
        return str(self.body["metadata"]["name"])

    @property
    def spec(self) -> Mapping[str, Any]:
        """The current spec."""
        found = self.body.get("spec")
        return found if isinstance(found, Mapping) else {}

    @property
    def status(self) -> Mapping[str, Any]:
        """The status that the operator wrote."""
        found = self.body.get("status")
        return found if isinstance(found, Mapping) else {}

    @property
    def current(self) -> StoredRevision | None:
        """The live revision; None if there is none, or it is not stored."""
        live = self.status.get("activeRevision")
        return next((each for each in self.revisions if live and each.hash == live), None)

    @property
    def is_live(self) -> bool:
        """Whether the current spec is live."""
        return is_live(self.body)

    def numbered(self, number: int) -> StoredRevision:
        """Return a revision by its number.

        Raises:
            NotFoundError: It is not stored.
        """
        for each in self.revisions:
            if each.number == number:
                return each
        stored = ", ".join(str(each.number) for each in reversed(self.revisions)) or "none"
        raise NotFoundError(
            f'SchedulerProfile "{self.name}" has no revision {number}; existing: {stored}; see: bayplan history'
        )

    def spec_of(self, revision: StoredRevision, *, resolved: bool = False) -> dict[str, Any]:
        """Return the spec of a revision, with digests in place of the client keys of extenders.

        Args:
            revision: One of the profile's.
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
        spec = revision.content
        if "schedulerName" not in self.spec and spec.get("schedulerName") == self.name:
            del spec["schedulerName"]
        return spec


def condition(body: Body, kind: str) -> Mapping[str, Any]:
    """Return a condition of an object; empty if it has none of that type."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def is_live(body: Body) -> bool:
    """Return whether the operator has made the current spec of a SchedulerProfile live."""
    seen = (body.get("status") or {}).get("observedGeneration") == body["metadata"].get("generation")
    ready = condition(body, "Ready")
    return bool(
        seen
        and condition(body, "Accepted").get("status") == "True"
        and (ready.get("status"), ready.get("reason")) == ("True", "Live")
    )


async def read_profile(connection: ApiConnection, name: str) -> Body:
    """Read a SchedulerProfile.

    Raises:
        NotFoundError: There is none of that name.
        ForbiddenError: The user may not read it.
        ClusterWriteError: The request failed.
    """
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
        connection: Connection to the API server.
        name: The profile's name.
        namespace: Namespace of the revisions; None searches all namespaces.
        own_namespace: Searched if the user may not search all.

    Raises:
        NotFoundError: There is no such profile.
        ForbiddenError: The user may not read it or its revisions.
        ConfigError: Revisions are stored in several namespaces, so that one must be named.
        ClusterWriteError: The request failed.
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
        raise ConfigError([Problem("--namespace", message)])
    return ProfileHistory(body, tuple(sorted(stored, key=lambda each: -each.number)))


def _may_not_list(where: str, error: ForbiddenError) -> str:
    return (
        f"you may not list controllerrevisions {where}; name the operator's namespace with --namespace, or request the "
        f"permission to list them there: {error}"
    )
