"""What all configuration models share: the spelling, the strictness and rules between fields.

Owns ``ConfigModel``. It must not know any one configuration. Why not pydantic's own validators for rules between
fields: such a validator reports one problem and stops, while a configuration is told everything that is wrong
with it. A model lists its rules in ``rule_problems`` instead, each with the place it is about.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

RULE_ERROR_TYPE = "rule"
"""The pydantic error type under which a broken rule travels."""

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A broken rule between fields.

    Attributes:
        location: Path from the model that found it, in the spelling of the document: camelCase names and list
            indices. As precise as possible: the entry that is one too many, not the list that holds it.
        message: What is wrong and what to do.
    """

    location: tuple[str | int, ...]
    message: str


class ConfigModel(BaseModel):
    """A frozen piece of configuration, camelCase in documents and snake_case in Python.

    Unknown fields are refused. Types are strict: the text "5" is not a number, as in the API server. A null means
    that the field is not set, as it does in Kubernetes' own decoders.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )

    zero_is_unset: ClassVar[frozenset[str]] = frozenset()
    """Fields (as spelt in documents) whose zero value means "take the default", as in Go's defaulting."""

    @model_validator(mode="before")
    @classmethod
    def _drop_unset(cls, data: Any) -> Any:
        """Leave out what is null, or zero where zero means that the default is wanted."""
        if not isinstance(data, Mapping):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None and not (key in cls.zero_is_unset and cls._is_zero(key, value))
        }

    @classmethod
    def _is_zero(cls, key: str, value: object) -> bool:
        """Whether a value is the zero of its field's type; the text "0" is none for a number, nor is false."""
        default = next(info.default for info in cls.model_fields.values() if info.alias == key)
        if isinstance(default, (int, float)):
            return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
        return value in ("", "0", "0s")

    @model_validator(mode="after")
    def _judge_rules(self) -> Self:
        """Report every broken rule between fields at once."""
        raise_rule_problems(type(self).__name__, self.rule_problems())
        return self

    def rule_problems(self) -> Iterable[RuleProblem]:
        """Give every broken rule between this model's fields; overridden where a model has such rules.

        Returns:
            The problems, none for a valid model.
        """
        return ()

    def document(self) -> dict[str, Any]:
        """Give the model as a document: plain JSON types, camelCase, without what equals its default.

        Returns:
            A fresh dict, from which ``model_validate`` makes an equal model.
        """
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def raise_rule_problems(title: str, problems: Iterable[RuleProblem]) -> None:
    """Raise all problems as one pydantic error, which keeps their places within the outer models.

    Args:
        title: The model's name.
        problems: The broken rules; nothing happens when there are none.

    Raises:
        ValidationError: When there is at least one.
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
