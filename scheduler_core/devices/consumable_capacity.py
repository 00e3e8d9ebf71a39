"""Capacity that a request consumes of a device, rounded by the request policy of the device.

A request on any device must not exceed its capacities; only shares of devices that allow multiple allocations consume
them. A capacity that is not requested is consumed by its default, or wholly.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/incubating/consumable_capacity.go``. There,
a default is exempt from the policy only in the same notation; here also in another one, which validation makes equal.
"""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_core.devices.records import Amount, CapacityRule
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.quantity import NANO, canonical_text, whole_units

_MAX_INT64 = 2**63 - 1
_NANO_PER_MILLI = 1_000_000


class CapacityError(SchedulerCoreError):
    """A request cannot be computed; the text names the capacity."""


def consumed_capacity(
    requested: Mapping[str, Amount], rules: Mapping[str, CapacityRule], *, fractional: bool
) -> dict[str, Amount] | None:
    """Return what a share consumes of each capacity of a device.

    Args:
        fractional: Whether ranges in thousandths are computed exactly (gate DRAFractionalCapacityRange).

    Returns:
        Amounts by name in the order of ``rules``; None if the device lacks a requested capacity, or its policy does
        not admit the amount.

    Raises:
        CapacityError: The request is negative or beyond the range of the arithmetic.
    """
    if not requested.keys() <= rules.keys():
        return None
    consumed: dict[str, Amount] = {}
    for name, rule in rules.items():
        try:
            amount = _rounded(requested.get(name), rule, fractional=fractional)
        except CapacityError as problem:
            raise CapacityError(f'capacity "{name}": {problem}') from None
        if amount.nano < 0:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        consumed[name] = amount
    if any(_violates(consumed[name], rule, fractional=fractional) for name, rule in rules.items()):
        return None
    return consumed


def _rounded(requested: Amount | None, rule: CapacityRule, *, fractional: bool) -> Amount:
    if requested is None:
        return rule.value if rule.default is None else rule.default
    if rule.has_range and rule.minimum is not None:
        return _rounded_to_range(requested, rule, rule.minimum, fractional=fractional)
    if rule.valid_values is not None:
        return next((value for value in rule.valid_values if requested.nano <= value.nano), requested)
    return requested


def _rounded_to_range(requested: Amount, rule: CapacityRule, minimum: Amount, *, fractional: bool) -> Amount:
    if requested.nano < minimum.nano:
        return minimum
    step = rule.step
    if step is None:
        return requested
    if fractional and _in_milli(rule):
        if requested.nano % _NANO_PER_MILLI:
            raise CapacityError(_unrepresentable(f"request {_text(requested)} is not a representable milli value"))
        amount, first, width, unit = (
            requested.nano // _NANO_PER_MILLI,
            minimum.nano // _NANO_PER_MILLI,
            step.nano // _NANO_PER_MILLI,
            _NANO_PER_MILLI,
        )
        limit = "the milli-value range"
    else:
        amount, first, width, unit = (*map(whole_units, (requested.nano, minimum.nano, step.nano)), NANO)
        limit = "MaxInt64"
    if width == 0:
        raise CapacityError(_unrepresentable("the step of the range is 0"))
    steps = -(-(amount - first) // width)
    rounded = first + steps * width
    if rounded > _MAX_INT64:
        raise CapacityError(_unrepresentable(f"rounding request {_text(requested)} up to the next step passes {limit}"))
    return Amount(rounded * unit, step.form)


def _unrepresentable(detail: str) -> str:
    return f"capacity request cannot be represented in the device's range arithmetic: {detail}"


def _text(amount: Amount) -> str:
    return canonical_text(amount.nano, amount.form)


def _in_milli(rule: CapacityRule) -> bool:
    bounds = [bound for bound in (rule.minimum, rule.maximum, rule.step) if bound is not None]
    if any(bound.nano % _NANO_PER_MILLI for bound in bounds):
        return False
    return rule.step is None or rule.step.nano >= _NANO_PER_MILLI


def _violates(amount: Amount, rule: CapacityRule, *, fractional: bool) -> bool:
    if not rule.has_policy or (rule.default is not None and rule.default.nano == amount.nano):
        return False
    if rule.has_range:
        return _violates_range(amount, rule, fractional=fractional)
    if rule.valid_values is not None:
        return all(value.nano != amount.nano for value in rule.valid_values)
    return False


def _violates_range(amount: Amount, rule: CapacityRule, *, fractional: bool) -> bool:
    if rule.maximum is not None and amount.nano > rule.maximum.nano:
        return True
    if rule.step is None:
        return False
    first = 0 if rule.minimum is None else rule.minimum.nano
    if fractional and _in_milli(rule):
        if amount.nano % _NANO_PER_MILLI:
            return True
        distance, width = (amount.nano - first) // _NANO_PER_MILLI, rule.step.nano // _NANO_PER_MILLI
    else:
        distance, width = whole_units(amount.nano) - whole_units(first), whole_units(rule.step.nano)
    return width == 0 or distance % width != 0
