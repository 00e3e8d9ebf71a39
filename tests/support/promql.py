"""Which series a PromQL expression asks for, and whether a scrape shows them.

Owns the walk through what ``promql_parser`` makes of an expression. It must not know which metrics there are. Labels
that Prometheus itself gives a target are in no scrape; they are taken as read.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser

TARGET_LABELS = frozenset({"job", "namespace", "pod", "instance", "service", "endpoint", "container"})
_PARTS = ("lhs", "rhs", "expr", "param", "vector_selector")
_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "MatchOp.Equal": operator.eq,
    "MatchOp.NotEqual": operator.ne,
    "MatchOp.Re": lambda value, pattern: re.fullmatch(pattern, value) is not None,
    "MatchOp.NotRe": lambda value, pattern: re.fullmatch(pattern, value) is None,
}

Series = Mapping[str, str]


@dataclass(frozen=True)
class Selector:
    """One selector of an expression.

    Attributes:
        name: Of the metric.
        matchers: Label name, operator and value.
        by: Labels that something around it keeps or groups by.
    """

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    by: frozenset[str] = frozenset()

    def finds(self, series: Iterable[Series]) -> bool:
        """Whether one of the series of that name bears every label that is asked for, with such a value."""
        return any(
            all(
                label in TARGET_LABELS or (label in labels and _OPERATORS[how](labels[label], value))
                for label, how, value in self.matchers
            )
            and self.by <= labels.keys() | TARGET_LABELS
            for labels in series
        )


def selectors(expression: str) -> list[Selector]:
    """Every selector of an expression.

    Raises:
        ValueError: It is no PromQL.
    """
    return list(_walk(promql_parser.parse(expression), frozenset()))


def _walk(node: Any, by: frozenset[str]) -> Iterator[Selector]:
    if isinstance(node, promql_parser.VectorSelector):
        assert node.name, "a selector without a name reads every series"
        found = tuple((each.name, str(each.op), each.value) for each in node.matchers.matchers)
        yield Selector(node.name, found, by)
        return
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql_parser.AggregateExpr) and modifier is not None:
        assert str(modifier.type) == "AggModifierType.By", "say which labels stay, not which go"
        by |= set(modifier.labels)
    for part in _PARTS:
        inner = getattr(node, part, None)
        if inner is not None and not isinstance(inner, str | float | int):
            yield from _walk(inner, by)
    for argument in getattr(node, "args", None) or ():
        yield from _walk(argument, by)
