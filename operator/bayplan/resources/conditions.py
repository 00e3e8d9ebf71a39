"""Conditions: the standard way to tell, in an object's status, what holds and why.

Owns ``Condition`` and how a list of them changes. It must not know which types of condition exist. Why
``set_condition`` keeps a transition time: the time says since when something holds, so a repeated reconcile with the
same answer must change nothing. Source: metav1.Condition and meta.SetStatusCondition of apimachinery v0.36.3.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct
from pydantic import Field
from pydantic.config import JsonDict

from bayplan.resources.resource_model import StatusModel, Timestamp

ConditionStatus = Literal["True", "False", "Unknown"]

MAX_MESSAGE_LENGTH = 32768
_CUT_MARK = " ..."


class Condition(StatusModel):
    """Whether something holds, since when and why."""

    type: str = Field(
        description="What the condition is about, such as Ready.",
        json_schema_extra={"maxLength": 316, "minLength": 1},
    )
    status: ConditionStatus = Field(description="Whether it holds: True, False or Unknown.")
    reason: str = Field(
        description="Why, as one word, such as InvalidSpec.",
        json_schema_extra={"maxLength": 1024, "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    )
    message: str = Field(
        default="", description="Why, in words, and what to do.", json_schema_extra={"maxLength": MAX_MESSAGE_LENGTH}
    )
    last_transition_time: Timestamp = Field(description="When the status last changed.")
    observed_generation: int = Field(
        default=0, ge=0, le=2**63 - 1, description="The metadata.generation that this was found for."
    )


class ConditionState(Struct, frozen=True):
    """The status of a condition of an object.

    Attributes:
        plural: Of the object's kind.
        name: Of the object.
        type: Of the condition.
        status: True, False or Unknown, in these words.
    """

    plural: str
    name: str
    type: str
    status: str


class ConditionUpdate(Struct, frozen=True):
    """What was found about one condition.

    Attributes:
        type: What it is about.
        status: Whether it holds.
        reason: Why, one word in CamelCase.
        message: Why, for people; cut to what the API server takes.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str


def set_condition(
    conditions: Sequence[Condition], update: ConditionUpdate, observed_generation: int, now: datetime
) -> list[Condition]:
    """Put what was found into a list of conditions.

    Args:
        conditions: The list as it is; left unchanged.
        update: What was found.
        observed_generation: The generation of the object that it was found for.
        now: The present time, with its zone.

    Returns:
        The new list: the condition in its old place or at the end, with a new transition time only when its status
        changed.
    """
    old = find_condition(conditions, update.type)
    kept = old is not None and old.status == update.status
    new = Condition(
        type=update.type,
        status=update.status,
        reason=update.reason,
        message=_cut(update.message),
        last_transition_time=old.last_transition_time if old is not None and kept else now.replace(microsecond=0),
        observed_generation=observed_generation,
    )
    if old is None:
        return [*conditions, new]
    return [new if condition is old else condition for condition in conditions]


def find_condition(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """Find a condition.

    Args:
        conditions: The list.
        kind: The condition's type.

    Returns:
        The condition, or None when the list has none of this type.
    """
    return next((condition for condition in conditions if condition.type == kind), None)


def _cut(message: str) -> str:
    if len(message) <= MAX_MESSAGE_LENGTH:
        return message
    return message[: MAX_MESSAGE_LENGTH - len(_CUT_MARK)] + _CUT_MARK


CONDITIONS_SCHEMA: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "maxItems": 16}
"""Schema keywords of a status field that holds conditions."""
