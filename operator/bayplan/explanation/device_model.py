"""The part of an explanation about resource claims and devices."""

from __future__ import annotations

from msgspec import Struct


class ClaimRejection(Struct, frozen=True, rename="camel"):
    """Obstacle of a claim.

    Attributes:
        claim: ``namespace/name``; several claims are joined by commas.
        request: Request that has too few devices; None if the obstacle is of the whole claim.
        reason: Description.
        nodes: Number of nodes it applies to.
        example: One of these nodes.
    """

    claim: str
    request: str | None
    reason: str
    nodes: int
    example: str


class UnmetCondition(Struct, frozen=True, rename="camel"):
    """Condition that devices do not meet.

    Attributes:
        what: Description, such as ``model is a100, must be h100``.
        required_by: Owner and expression of the selector; None if it is no selector.
        by_holders: Whether the claims of ``held_by`` cause it.
    """

    what: str
    required_by: str | None
    by_holders: bool = False


class DeviceGroup(Struct, frozen=True, rename="camel"):
    """Devices that do not serve a request for the same reasons.

    Attributes:
        claim: ``namespace/name``.
        request: The request, or ``request/alternative``.
        devices: Number of devices.
        nodes: Number of nodes that reach them.
        example: One of the devices, ``driver/pool/device``.
        unmet: The reasons.
        held_by: Claims that have the devices, or others that share their counters, with pods; the first few.
        more_holders: Number of further claims.
    """

    claim: str
    request: str
    devices: int
    nodes: int
    example: str
    unmet: tuple[UnmetCondition, ...]
    held_by: tuple[str, ...] = ()
    more_holders: int = 0


class DeviceExplanation(Struct, frozen=True, rename="camel"):
    """What nodes and devices lack for the claims of a pod.

    Attributes:
        claims: Obstacles of claims, most nodes first.
        rejected: Devices of requests that have too few, by request, those that lack the least first.
        omitted: Number of devices of requests that are in no group of ``rejected``, by ``claim, request``.
    """

    claims: tuple[ClaimRejection, ...]
    rejected: tuple[DeviceGroup, ...]
    omitted: dict[str, int] = {}


def request_key(claim: str, request: str) -> str:
    """Return the key of a request in ``omitted``."""
    return f"{claim}, {request}"
