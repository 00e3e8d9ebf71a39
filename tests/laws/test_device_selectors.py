"""Laws of device selectors: any text compiles or raises a compile error, and the cost of its evaluation is bounded.

Explanations describe any text.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_core.cel.device_selector import (
    DeviceFacts,
    SelectorCompileError,
    SelectorRuntimeError,
    Version,
    compile_selector,
)
from scheduler_core.cel.overloads import COST_LIMIT
from scheduler_core.explain.device_problems import unmet_conditions
from tests.parity.oracle.generation.selectors import selector_case
from tests.parity.oracle.selector_parity import device_facts

FACTS = DeviceFacts(
    driver="gpu.example.com",
    attributes={"model": "A100", "count": 8, "version": Version("1.2.3"), "links": (1, 2)},
    capacity={"memory": "80Gi"},
)
FRAGMENTS = st.sampled_from(
    [
        *[
            "device",
            "attributes",
            "capacity",
            "driver",
            "model",
            ".",
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            "?",
            ":",
            ",",
            "!",
            "-",
            "+",
            "*",
            "/",
            "%",
            "==",
            "!=",
            "<",
            ">",
            "&&",
            "||",
            "in",
            "true",
            "null",
            "x",
        ],
        *[
            "1",
            "2u",
            "0.5",
            "99999999999999999999",
            "1e999",
            "0x",
            "all",
            "exists",
            "map",
            "filter",
            "size",
            "has",
            "cel",
            "bind",
            "optional",
            "of",
            "none",
        ],
        *["quantity", "semver", "matches", "sort", "lists", "range", "format", "duration", "timestamp", "#", "`"],
        '"a"',
        'b"\\x00"',
        "r'\\d'",
        "\n",
        " ",
        "é",
        "x{",
        "x.x{x: x}",
    ]
)


def evaluate(expression: str, facts: DeviceFacts) -> None:
    assert unmet_conditions(expression, facts)
    try:
        selector = compile_selector(expression)
    except SelectorCompileError:
        return
    try:
        match, cost = selector.matches_with_cost(facts)
    except SelectorRuntimeError:
        return
    assert isinstance(match, bool)
    assert 0 <= cost <= COST_LIMIT


@given(st.text(max_size=200))
def test_any_text_compiles_or_fails_as_documented(expression: str) -> None:
    evaluate(expression, FACTS)


@example("x{x: x}")
@example("(" * 240 + "device.driver" + ")" * 240 + ' == "x" && true')
@given(st.lists(FRAGMENTS, max_size=30).map(" ".join) | st.lists(FRAGMENTS, max_size=30).map("".join))
def test_any_tokens_compile_or_fail_as_documented(expression: str) -> None:
    evaluate(expression, FACTS)


@given(st.integers(min_value=0))
def test_any_generated_selector_evaluates_or_fails_as_documented(index: int) -> None:
    case = selector_case(99, index)
    evaluate(case["expression"], device_facts(case))


@given(st.integers(min_value=0))
def test_unread_attributes_do_not_change_the_result(index: int) -> None:
    """Attributes that a selector does not read do not change its result."""
    case = selector_case(7, index)
    try:
        selector = compile_selector(case["expression"])
    except SelectorCompileError:
        return
    if selector.reads is None:
        return
    whole = device_facts(case)
    read = DeviceFacts(
        whole.driver,
        whole.allow_multiple_allocations,
        {name: value for name, value in whole.attributes.items() if _qualified(whole, name) in selector.reads},
        {name: value for name, value in whole.capacity.items() if _qualified(whole, name) in selector.reads},
    )

    def outcome(facts: DeviceFacts) -> bool | str:
        try:
            return selector.matches(facts)
        except SelectorRuntimeError as error:
            return str(error)

    assert outcome(read) == outcome(whole)


def _qualified(facts: DeviceFacts, name: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (facts.driver, name)
