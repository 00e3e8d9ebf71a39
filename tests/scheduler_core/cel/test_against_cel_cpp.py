"""Standard CEL compared with Google's C++ implementation, which has no Kubernetes functions and no cost limit."""

from __future__ import annotations

import random

import pytest
from cel_expr_python import cel

from scheduler_core.cel.device_selector import (
    DeviceFacts,
    SelectorCompileError,
    SelectorRuntimeError,
    compile_selector,
)

ENVIRONMENT = cel.NewEnv(variables={"device": cel.Type.DYN})
INTEGERS = ["0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "size('abc')", "size([1, 2])"]
STRINGS = ["''", "'a'", "'abc'", "'h\u00e9llo'", "r'\\d'", "device.driver"]
LISTS = ["[1, 2, 3]", "[-1]", "[7, 0]"]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]


def integer(source: random.Random, depth: int) -> str:
    if depth <= 0:
        return source.choice(INTEGERS)
    left, right = integer(source, depth - 1), integer(source, depth - 1)
    return source.choice(
        [f"({left} {source.choice('+-*/%')} {right})", f"({boolean(source, depth - 1)} ? {left} : {right})"]
    )


def boolean(source: random.Random, depth: int) -> str:
    if depth <= 0:
        return source.choice(["true", "false"])
    below = depth - 1
    choices = [
        f"({boolean(source, below)} && {boolean(source, below)})",
        f"({boolean(source, below)} || {boolean(source, below)})",
        f"!({boolean(source, below)})",
        f"({integer(source, below)} {source.choice(COMPARISONS)} {integer(source, below)})",
        f"({source.choice(STRINGS)} {source.choice(COMPARISONS)} {source.choice(STRINGS)})",
        f"{source.choice(STRINGS)}.contains({source.choice(STRINGS)})",
        f"{source.choice(STRINGS)}.startsWith({source.choice(STRINGS)})",
        f"{source.choice(STRINGS)}.matches('^[a-c]+$')",
        f"({integer(source, below)} in {source.choice(LISTS)})",
        f"{source.choice(LISTS)}.all(x, x {source.choice(COMPARISONS)} {integer(source, below)})",
        f"{source.choice(LISTS)}.exists(x, x / {integer(source, below)} == 1)",
        f"{source.choice(LISTS)}.exists_one(x, x > {integer(source, below)})",
        f"({source.choice(LISTS)}.map(x, x + {integer(source, below)}) == {source.choice(LISTS)})",
        f"({source.choice(LISTS)}.filter(x, {boolean(source, below)}).size() == {integer(source, below)})",
        f"(double({integer(source, below)}) / 2.0 < 3.5)",
        f"(uint({integer(source, below)}) + 1u > 3u)",
        f"(timestamp({integer(source, below)}) < timestamp('2030-01-01T00:00:00Z') && duration('2h') > duration('1m'))",
        f"has({{'a': {integer(source, below)}}}.a)",
        "(device.attributes['d'].count == 8)",
        "(device.attributes['d'].absent == 8)",
        f"('d' in device.attributes && {boolean(source, below)})",
    ]
    return source.choice(choices)


def ours(expression: str) -> object:
    """Return the result, or None if cel-go converts constants at compile time and fails there."""
    try:
        return compile_selector(expression).matches(DeviceFacts("d", attributes={"count": 8}))
    except SelectorRuntimeError:
        return "error"
    except SelectorCompileError as error:
        return None if str(error).startswith("program instantiation failed") else "error"


def theirs(expression: str) -> object:
    """Return the C++ implementation's result."""
    data = {"device": {"driver": "d", "attributes": {"d": {"count": 8}}}}
    try:
        result = ENVIRONMENT.compile(expression).eval(data=data)
    except RuntimeError:
        return "error"
    return result.value() if result.type() == cel.Type.BOOL else "error"


@pytest.mark.parametrize("seed", range(4))
def test_results_equal_the_cpp_implementation(seed: int) -> None:
    source = random.Random(seed)
    results = {text: (ours(text), theirs(text)) for text in [boolean(source, 3) for _ in range(500)]}
    compared = {text: pair for text, pair in results.items() if pair[0] is not None}
    assert len(compared) > 300
    assert {text: pair for text, pair in compared.items() if pair[0] != pair[1]} == {}
