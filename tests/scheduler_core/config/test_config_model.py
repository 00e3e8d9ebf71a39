"""Common behavior of configuration models: strict types, frozen, null means unset, all violated rules are reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest
from pydantic import Field, ValidationError

from scheduler_core.config.config_model import ConfigModel, RuleProblem


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


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"holdTime": "1s"}, {"holdTime": "1s"}, id="set"),
        pytest.param({"hold_time": "1s"}, {"holdTime": "1s"}, id="python-spelling"),
        pytest.param({"holdTime": None, "count": None}, {}, id="null"),
        pytest.param({"holdTime": "", "share": 0}, {}, id="zero-where-zero-is-unset"),
        pytest.param({"holdTime": "0s"}, {}, id="zero-duration"),
        pytest.param({"count": 0}, {"count": 0}, id="zero-where-zero-is-a-value"),
        pytest.param({"count": 3}, {}, id="the-default-is-not-written"),
        pytest.param({"names": ["a"]}, {"names": ["a"]}, id="list"),
    ],
)
def test_document(document: dict[str, object], expected: dict[str, object]) -> None:
    """A document contains the fields that differ from the defaults; reading it returns an equal model."""
    model = Sample.model_validate(document)
    assert model.document() == expected
    assert Sample.model_validate(model.document()) == model


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"count": "3"}, id="text-for-a-number"),
        pytest.param({"count": 3.0}, id="fraction-for-a-number"),
        pytest.param({"count": True}, id="boolean-for-a-number"),
        pytest.param({"share": False}, id="boolean-for-a-number-that-may-be-unset"),
        pytest.param({"share": "0"}, id="text-for-a-number-that-may-be-unset"),
        pytest.param({"other": 1}, id="unknown-field"),
        pytest.param({"names": "abc"}, id="text-for-a-list"),
        pytest.param([], id="no-mapping"),
    ],
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
