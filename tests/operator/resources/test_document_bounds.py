"""Tests of the bounds of a spec."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import (
    MAX_DEPTH,
    MAX_KEY_LENGTH,
    MAX_TEXT_LENGTH,
    MAX_VALUES,
    bound_problems,
)

from scheduler_core.errors import ConfigError


def nested(levels: int) -> Any:
    document: Any = 1
    for _ in range(levels):
        document = {"a": document}
    return document


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(None, id="null"),
        pytest.param(nested(MAX_DEPTH), id="maximum depth"),
        pytest.param({"a": "x" * MAX_TEXT_LENGTH}, id="maximum text length"),
        pytest.param({"x" * MAX_KEY_LENGTH: 1}, id="maximum key length"),
        pytest.param({"a": [0] * (MAX_VALUES - 2)}, id="maximum number of values"),
        pytest.param({"a": [2**64 - 1, -(2**63), True, 1e300]}, id="largest numbers"),
    ],
)
def test_within_bounds(document: object) -> None:
    """Values within the bounds have no problems."""
    assert bound_problems(document, "spec") == ()


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        pytest.param(nested(MAX_DEPTH + 1), "spec" + ".a" * MAX_DEPTH, "nested deeper than 32 levels", id="deep"),
        pytest.param({"b": "x" * (MAX_TEXT_LENGTH + 1)}, "spec.b", "at most 65,536 characters", id="long text"),
        pytest.param({"b": {"x" * 400: 1}}, "spec.b", "name of over 317 characters", id="long key"),
        pytest.param({"b": {1: 2}}, "spec.b", "strings as field names", id="number as a key"),
        pytest.param({"b": [[0] * 5000, [0] * 5000]}, "spec.b[1]", "more than 10,000 values", id="many values"),
        pytest.param({"b": [0] * 200_000}, "spec.b", "at most 10,000 entries, not 200,000", id="long list"),
        pytest.param({"b": [1, 2**64]}, "spec.b[1]", "at most 64 bits", id="large number"),
        pytest.param({"b": -(10**5000)}, "spec.b", "at most 64 bits", id="number that Python does not print"),
    ],
)
def test_out_of_bounds(document: object, path: str, message: str) -> None:
    """A value out of bounds is reported by its path and not quoted at length."""
    (problem,) = bound_problems(document, "spec")
    assert problem.path == path
    assert message in problem.message
    assert len(problem.message) < 200


def test_the_number_of_problems_is_bounded() -> None:
    """At most eight values out of bounds are reported."""
    assert len(bound_problems([2**70] * 9000, "spec")) == 8


def test_a_deeply_nested_spec_is_rejected() -> None:
    """Args with thousands of levels are a problem and not a RecursionError."""
    body = {"metadata": {"name": "deep"}, "spec": {"plugin": "NodeResourcesFit", "args": nested(5000)}}
    with pytest.raises(ConfigError) as raised:
        PluginConfig.from_object(body)
    assert raised.value.problems[0].path.startswith("spec.args.a.a.")
