"""Fields that the specs of several custom resources have: amounts of resources, and the name of a PriorityClass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from bayplan.resources.crd_rules import DNS_NAME_PATTERN, matches
from bayplan.resources.resource_model import MAX_NAME_LENGTH
from scheduler_core.config.config_model import INT64_MAX, RuleProblem
from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_requests import nano

_MAX_RESOURCES = 64
_MAX_AMOUNT_LENGTH = 64
_SHOWN = 64
_AMOUNT_MESSAGE = 'must be an amount of 0 or more, such as 4, "500m" or "64Gi"'
_CLASS_MESSAGE = 'must be the name of a PriorityClass: lower case letters, digits, "-" and "."'

Quantity = Annotated[
    str | int,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "maxLength": _MAX_AMOUNT_LENGTH,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 0 : isQuantity(self) && "
                    "!quantity(self).isLessThan(quantity('0'))",
                    "message": _AMOUNT_MESSAGE,
                }
            ],
        }
    ),
]


def is_amount(amount: str | int) -> bool:
    """Return whether the API server accepts a quantity; its length is checked first, for Python's integer limit."""
    if isinstance(amount, int):
        return 0 <= amount <= INT64_MAX
    try:
        return len(amount) <= _MAX_AMOUNT_LENGTH and nano(amount) >= 0
    except QuantityError:
        return False


def amounts(description: str, *, min_length: int | None = None) -> Any:
    """Return an optional field for amounts by resource."""
    return Field(
        default=None,
        min_length=min_length,
        description=description,
        json_schema_extra={"maxProperties": _MAX_RESOURCES},
    )


def amount_problems(field: str, given: Mapping[str, str | int] | None) -> Iterator[RuleProblem]:
    """Check that amounts can be parsed and are not negative."""
    for name, amount in (given or {}).items():
        if not is_amount(amount):
            shown = amount[:_SHOWN] if isinstance(amount, str) else min(max(amount, -INT64_MAX), INT64_MAX)
            yield RuleProblem((field, name), f'{_AMOUNT_MESSAGE}, not "{shown}"')


def priority_class_name(description: str) -> Any:
    """Return an optional field for the name of a PriorityClass."""
    return Field(
        default=None,
        min_length=1,
        description=description,
        json_schema_extra={
            "maxLength": MAX_NAME_LENGTH,
            "x-kubernetes-validations": [matches(DNS_NAME_PATTERN, _CLASS_MESSAGE)],
        },
    )


def class_problems(name: str | None) -> Iterator[RuleProblem]:
    """Check the name of a PriorityClass."""
    if name and not re.fullmatch(DNS_NAME_PATTERN, name):
        yield RuleProblem(("priorityClassName",), f'{_CLASS_MESSAGE}, not "{name[:_SHOWN]}"')
