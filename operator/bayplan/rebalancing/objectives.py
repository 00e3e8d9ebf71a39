"""Reads the piece of a resource that Defragment frees."""

from __future__ import annotations

from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_requests import in_units, nano
from scheduler_core.rebalance.requests import Defragment


def piece_of(resource: str, amount: str | int) -> Defragment | None:
    """Return the objective; None if the amount is no positive quantity, or the resource is not counted."""
    try:
        units = in_units({resource: nano(amount)})
    except QuantityError:
        return None
    return Defragment(resource, units[resource]) if units.get(resource, 0) > 0 else None
