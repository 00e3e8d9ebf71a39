"""Common behavior of configuration models: strict types, frozen, null means unset, all violated rules are reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest
from pydantic import Field, ValidationError

from scheduler_core.config.config_model import ConfigModel, RuleProblem
from tests.support.tables import table


class Sample(ConfigModel):
    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"holdTime", "share"})

    hold_time: str = "10s"
    share: int = 5
    count: int = 3
    names: tuple[str, ...] = Field(default=(), strict=False)

    def rule_problems(self) -> Iterator[RuleProblem]:
        for index, name in enumerate(self.names):
            if not name.islower():
                yield RuleProblem(("names", index), f"{name} is loud")


@table(
    "document, expected",
    ("set", {"holdTime": "1s"}, {"holdTime": "1s"}),
    ("python-spelling", {"hold_time": "1s"}, {"holdTime": "1s"}),
    ("null", {"holdTime": None, "count": None}, {}),
    ("zero-where-zero-is-unset", {"holdTime": "", "share": 0}, {}),
    ("zero-duration", {"holdTime": "0s"}, {}),
    ("zero-where-zero-is-a-value", {"count": 0}, {"count": 0}),
    ("the-default-is-not-written", {"count": 3}, {}),
    ("list", {"names": ["a"]}, {"names": ["a"]}),
)
def test_document(document: dict[str, object], expected: dict[str, object]) -> None:
    """A document contains the fields that differ from the defaults; reading it returns an equal model."""
    model = Sample.model_validate(document)
    assert model.document() == expected
    assert Sample.model_validate(model.document()) == model


@table(
    "document",
    ("text-for-a-number", {"count": "3"}),
    ("fraction-for-a-number", {"count": 3.0}),
    ("boolean-for-a-number", {"count": True}),
    ("boolean-for-a-number-that-may-be-unset", {"share": False}),
    ("text-for-a-number-that-may-be-unset", {"share": "0"}),
    ("unknown-field", {"other": 1}),
    ("text-for-a-list", {"names": "abc"}),
    ("no-mapping", []),
)
def test_strictness(document: object) -> None:
    """Values of another type and unknown fields are rejected."""
    with pytest.raises(ValidationError):
        Sample.model_validate(document)


def test_every_violated_rule_is_reported() -> None:
    """One error reports all violated rules, each with its location."""
    with pytest.raises(ValidationError) as raised:
        Sample(names=("A", "b", "C"))
    assert [(error["loc"], error["msg"]) for error in raised.value.errors()] == [
        (("names", 0), "A is loud"),
        (("names", 2), "C is loud"),
    ]


def test_frozen() -> None:
    """A field of a model cannot be assigned."""
    with pytest.raises(ValidationError, match="frozen"):
        Sample().count = 4  # type: ignore[misc]  # the assignment that must fail
