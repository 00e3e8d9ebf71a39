"""The kept revisions of a profile, read with the rights of whoever asks.

Owns where they are looked for and which of them is which. It must not know how they are printed.

Why all namespaces are searched first: revisions stand in the operator's namespace, which its users need not know. Who
may not list them everywhere is asked for the namespace, or has it in the context of the kubeconfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from bayplan.kube.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.controller_revisions import ControllerRevisions
from bayplan.resources.resource_model import API_VERSION
from bayplan.stored_revision import StoredRevision, labels_of, read_revision
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, Problem

PROFILES = f"/apis/{API_VERSION}/schedulerprofiles"
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProfileHistory:
    """A profile and its past.

    Attributes:
        body: The SchedulerProfile.
        revisions: What is kept of it, newest first.
    """

    body: Body
    revisions: tuple[StoredRevision, ...]

    @property
    def name(self) -> str:
        """The profile's name."""
        return str(self.body["metadata"]["name"])

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec as it is written now."""
        found = self.body.get("spec")
        return found if isinstance(found, Mapping) else {}

    @property
    def status(self) -> Mapping[str, Any]:
        """What the operator says of it."""
        found = self.body.get("status")
        return found if isinstance(found, Mapping) else {}

    @property
    def current(self) -> StoredRevision | None:
        """The revision that is live; None when none is, or it is not kept."""
        live = self.status.get("activeRevision")
        return next((each for each in self.revisions if live and each.hash == live), None)

    @property
    def is_live(self) -> bool:
        """Whether the spec as it is written now is what is live."""
        return is_live(self.body)

    def numbered(self, number: int) -> StoredRevision:
        """A revision by its number.

        Raises:
            NotFoundError: It is not kept.
        """
        for each in self.revisions:
            if each.number == number:
                return each
        kept = ", ".join(str(each.number) for each in reversed(self.revisions)) or "none"
        raise NotFoundError(
            f'SchedulerProfile "{self.name}" has no revision {number}; kept are {kept}; see: bayplan history'
        )

    def spec_of(self, revision: StoredRevision, *, resolved: bool = False) -> dict[str, Any]:
        """The spec of a revision.

        Args:
            revision: One of the profile's.
            resolved: With the args of PluginConfigs as they were in the place of references; always so for a revision
                that an earlier version of Bayplan kept.

        Raises:
            ClusterWriteError: This version of Bayplan cannot read it.
        """
        if revision.origin.spec is not None and not resolved:
            return dict(revision.origin.spec)
        if revision.config is None:
            raise ClusterWriteError(
                f"revision {revision.number} was kept by a version of Bayplan that this one does not understand; "
                "use that version, or another revision"
            )
        spec = revision.content
        if "schedulerName" not in self.spec and spec.get("schedulerName") == self.name:
            del spec["schedulerName"]
        return spec


def condition(body: Body, kind: str) -> Mapping[str, Any]:
    """A condition of an object; empty when it has none of that kind."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def is_live(body: Body) -> bool:
    """Whether the operator has made a SchedulerProfile live as it is written."""
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
        ClusterWriteError: The API server could not be asked.
    """
    return await read_object(connection, PROFILES, "SchedulerProfile", name)


async def read_object(connection: ApiConnection, collection: str, kind: str, name: str) -> Body:
    """Read one object of a cluster-scoped kind; errors as of :func:`read_profile`."""
    request = ApiRequest("GET", f"{collection}/{quote(name, safe='')}", lane=Lane.READS)
    try:
        answer = await connection.request(request)
    except NotFoundError as error:
        listing = f"kubectl get {collection.rpartition('/')[2]}"
        raise NotFoundError(
            f'there is no {kind} "{name}", or the API server has no such kind; see: {listing}'
        ) from error
    except ForbiddenError as error:
        raise ForbiddenError(f'you may not read {kind} "{name}"; ask for the right to get it: {error}') from error
    body: Body = msgspec.json.decode(answer)
    return body


async def read_history(
    connection: ApiConnection, name: str, namespace: str | None, own_namespace: str
) -> ProfileHistory:
    """Read a profile and its kept revisions.

    Args:
        connection: To the API server.
        name: The profile's name.
        namespace: Where revisions are kept; None searches all namespaces.
        own_namespace: Searched where the user may not search all.

    Raises:
        NotFoundError: There is no such profile.
        ForbiddenError: The user may not read it or its revisions.
        ConfigError: Revisions are kept in several namespaces, so that one must be named.
        ClusterWriteError: The API server could not be asked.
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
    kept = [each for each in map(read_revision, found) if each.profile_uid == uid]
    namespaces = sorted({each.namespace for each in kept})
    if len(namespaces) > 1:
        told = f"several operators keep revisions of this profile, in {', '.join(namespaces)}; name one of these"
        raise ConfigError([Problem("--namespace", told)])
    return ProfileHistory(body, tuple(sorted(kept, key=lambda each: -each.number)))


def _may_not_list(where: str, error: ForbiddenError) -> str:
    return (
        f"you may not list controllerrevisions {where}; name the operator's namespace with --namespace, or ask for the "
        f"right to list them there: {error}"
    )
