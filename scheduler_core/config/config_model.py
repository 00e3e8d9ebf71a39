"""Base of all configuration models: camelCase names, strict types, and rules between fields.

A pydantic validator for a rule between fields reports one problem and stops, but a configuration error must contain all
problems. So a model returns its rule violations from ``rule_problems``, each with its location.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

RULE_ERROR_TYPE = "rule"
"""The pydantic error type for violated rules."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A violated rule between fields.

    Attributes:
        location: Path from the model with the rule, with camelCase names and list indices as in the document. As
            precise as possible: the surplus entry, not the list that contains it.
        message: What is wrong and what to do.
    """

    location: tuple[str | int, ...]
    message: str


class ConfigModel(BaseModel):
    """A frozen configuration object, camelCase in documents and snake_case in Python.

    Unknown fields are rejected. Types are strict: the text "5" is not a number, as in the API server. A null means that
    the field is not set, as in Kubernetes' decoders.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )

    zero_is_unset: ClassVar[frozenset[str]] = frozenset()
    """Fields (as in documents) whose zero value means "use the default", as in Go's defaulting."""

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, data: Any) -> Any:
        """Remove fields that are null, or zero where zero means the default."""
        if not isinstance(data, Mapping):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None and not (key in cls.zero_is_unset and cls._is_zero(key, value))
        }

    @classmethod
    def _is_zero(cls, key: str, value: object) -> bool:
        """Return whether a value is the zero of its field's type; for a number, neither "0" nor false is."""
        default = next(info.default for info in cls.model_fields.values() if info.alias == key)
        if isinstance(default, (int, float)):
            return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
        return value in ("", "0", "0s")

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        """Report all violated rules between fields at once."""
        raise_rule_problems(type(self).__name__, self.rule_problems())
        return self

    def rule_problems(self) -> Iterable[RuleProblem]:
        """Return the violated rules between this model's fields; models with such rules override it."""
        return ()

    def document(self) -> dict[str, Any]:
        """Return the model as a document: plain JSON types, camelCase, without default values.

        Returns:
            A new dict, from which ``model_validate`` creates an equal model.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def raise_rule_problems(title: str, problems: Iterable[RuleProblem]) -> None:
    """Raise all problems as one pydantic error, which keeps their locations within the outer models.

    Args:
        problems: The violated rules; without any, nothing happens.

    Raises:
        ValidationError: There is at least one problem.
    """
    details = [
        InitErrorDetails(
            type=PydanticCustomError(RULE_ERROR_TYPE, "{message}", {"message": problem.message}),
            loc=problem.location,
            input=None,
        )
        for problem in problems
    ]
    if details:
        raise ValidationError.from_exception_data(title, details)
