"""Conditions of an object's status.

``set_condition`` keeps the transition time if the status is the same: the time is that of the last change, so that a
repeated reconcile with the same result changes nothing. Source: metav1.Condition and meta.SetStatusCondition of
apimachinery v0.37.1.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.config import JsonDict

from bayplan.resources.resource_model import StatusModel, Timestamp, count, text
from scheduler_core.config.config_model import INT64_MAX
from scheduler_core.errors import Problem

ConditionStatus = Literal["True", "False", "Unknown"]

MAX_MESSAGE_LENGTH = 32768
_CUT_MARK = " ..."
_MAX_PROBLEMS_LENGTH = 4096
_MAX_PROBLEM_LENGTH = 1024


def generation_field(of: str) -> Any:
    """Return the field with the generation of the object for which *of* was computed."""
    return count(f"The metadata.generation that {of} was computed for.", default=0, limit=INT64_MAX)


class Condition(StatusModel):
    """Condition of a status."""

    type: str = Field(
        description="Type of the condition, such as Ready.",
        json_schema_extra={"maxLength": 316, "minLength": 1},
    )
    status: ConditionStatus = Field(description="Status of the condition: True, False or Unknown.")
    reason: str = Field(
        description="Reason as one word, such as InvalidSpec.",
        json_schema_extra={"maxLength": 1024, "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    )
    message: str = text("Explanation for people, and what to do.", MAX_MESSAGE_LENGTH, default="")
    last_transition_time: Timestamp = Field(description="Time of the last change of the status.")
    observed_generation: int = generation_field("the condition")


_READER = TypeAdapter(tuple[Condition, ...])


class ConditionState(Struct, frozen=True):
    """The status of a condition of an object: ``True``, ``False`` or ``Unknown``."""

    plural: str
    name: str
    type: str
    status: str


class ConditionUpdate(Struct, frozen=True):
    """New state of a condition.

    Attributes:
        reason: One word in CamelCase.
        message: Explanation for people; cut to the API server's limit.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str


def set_condition(
    conditions: Sequence[Condition], update: ConditionUpdate, observed_generation: int, now: datetime
) -> list[Condition]:
    """Set a condition in a list of conditions.

    Returns:
        The new list: the condition in its old place or at the end, with a new transition time only if its status
        changed.
    """
    old = find_condition(conditions, update.type)
    unchanged = old is not None and old.status == update.status
    new = Condition(
        type=update.type,
        status=update.status,
        reason=update.reason,
        message=cut_text(update.message, MAX_MESSAGE_LENGTH),
        last_transition_time=old.last_transition_time if old is not None and unchanged else now.replace(microsecond=0),
        observed_generation=observed_generation,
    )
    if old is None:
        return [*conditions, new]
    return [new if condition is old else condition for condition in conditions]


def find_condition(conditions: Sequence[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def read_conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Parse the conditions of a status; empty if they cannot be parsed."""
    try:
        return _READER.validate_python(status.get("conditions") or ())
    except ValidationError:
        return ()


WITH_WARNINGS = "ValidWithWarnings"
"""Reason of the condition Accepted if entries do not do what they seem to do."""


def problems_message(problems: Iterable[Problem], noun: str = "problems") -> str:
    """Format problems on one line, for ``kubectl get``; problems beyond 4,096 characters are only counted.

    Returns:
        Each problem with its path; several are counted and numbered.
    """
    texts = [" ".join(str(problem).split()) for problem in problems]
    if len(texts) == 1:
        return cut_text(texts[0], _MAX_PROBLEMS_LENGTH)
    message = f"{len(texts)} {noun}:"
    for number, line in enumerate(texts, start=1):
        longer = f"{message} ({number}) {cut_text(line, _MAX_PROBLEM_LENGTH)}"
        if len(longer) > _MAX_PROBLEMS_LENGTH:
            return f"{message} and {len(texts) - number + 1} more"
        message = longer
    return message


def cut_text(text: str, limit: int) -> str:
    """Shorten a text to ``limit`` characters; it then ends in dots."""
    return text if len(text) <= limit else text[: limit - len(_CUT_MARK)] + _CUT_MARK


CONDITIONS_SCHEMA: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "maxItems": 16}


def conditions_field(description: str) -> Any:
    return Field(default=(), description=description, json_schema_extra=dict(CONDITIONS_SCHEMA))
