"""Promotion of a shadow: the user writes its spec into its live profile, as one edit.

The edit is an ordinary one: the operator makes it live, stores the revision, and a rollback takes it back. The shadow
stays until the user deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.profiles.history_listing import PROFILES, Body, condition, read_profile
from bayplan.profiles.rollback import RollbackError, SpecWrite, write_spec
from bayplan.resources.resource_model import change_cause
from bayplan.resources.scheduler_profile import SHADOW_FIELDS
from scheduler_core.errors import NotFoundError

FIELD_MANAGER = "bayplan-promote"


class PromotionError(RollbackError):
    """Raised when a shadow cannot be promoted."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """The promotion to write.

    Attributes:
        shadow: The shadow, as it was read.
        live: Its live profile, as it was read.
        spec: The spec to write.
    """

    shadow: Body
    live: Body
    spec: Mapping[str, Any]

    @property
    def shadow_name(self) -> str:
        """Name of the shadow."""
        return str(self.shadow["metadata"]["name"])

    @property
    def live_name(self) -> str:
        """Name of the live profile."""
        return str(self.live["metadata"]["name"])

    @property
    def cause(self) -> str:
        """The change cause, for the annotation."""
        earlier = change_cause(self.shadow["metadata"])
        return f"promote {self.shadow_name}{f': {earlier}' if earlier else ''}"

    @property
    def evidence(self) -> str:
        """What the shadow has compared so far."""
        found = (self.shadow.get("status") or {}).get("shadow") or {}
        compared, agreed, differed = (found.get(name, 0) for name in ("compared", "agreed", "differed"))
        return f"{compared} decisions compared: {agreed} agree, {differed} differ"


async def plan_promotion(connection: ApiConnection, name: str) -> Promotion:
    """Determine the spec to write.

    Args:
        connection: Connection to the API server.
        name: Name of the shadow.

    Raises:
        NotFoundError: There is no such profile, or no live profile of its scheduler name.
        PromotionError: The profile is no shadow, is not valid, or equals the live profile.
        ForbiddenError: The user may not read or list profiles.
        ClusterWriteError: A request failed.
    """
    shadow = await read_profile(connection, name)
    spec: Mapping[str, Any] = shadow.get("spec") or {}
    shadow_of = spec.get("shadowOf")
    if not shadow_of:
        raise PromotionError(f'SchedulerProfile "{name}" is no shadow: it has no spec.shadowOf; nothing was changed')
    accepted = condition(shadow, "Accepted")
    seen = (shadow.get("status") or {}).get("observedGeneration") == shadow["metadata"].get("generation")
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


async def write_promotion(connection: ApiConnection, promotion: Promotion, *, dry_run: bool) -> Body:
    """Write the spec, unless the live profile has changed since it was read.

    Args:
        connection: Connection to the API server.
        promotion: What to write.
        dry_run: Let the API server validate it, and change nothing.

    Returns:
        The live profile in the API server's response.

    Raises:
        ConflictError, ForbiddenError, RollbackError, ClusterWriteError: As for a rollback.
    """
    what = f'the spec of "{promotion.shadow_name}"'
    change = SpecWrite(promotion.live, promotion.spec, promotion.cause, FIELD_MANAGER, what)
    return await write_spec(connection, change, dry_run=dry_run)
