"""Selectors of PromQL expressions, and whether a scrape has series for them.

Target labels, which Prometheus adds, are in no scrape; any value of them matches.
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
        name: Name of the metric.
        matchers: Label name, operator and value of each matcher.
        by: Labels by which the enclosing aggregations group.
    """

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    by: frozenset[str] = frozenset()

    def finds(self, series: Iterable[Series]) -> bool:
        """Return whether one of the series with the metric's name matches all matchers and has the grouping labels."""
        return any(
            all(
                label in TARGET_LABELS or (label in labels and _OPERATORS[how](labels[label], value))
                for label, how, value in self.matchers
            )
            and self.by <= labels.keys() | TARGET_LABELS
            for labels in series
        )


def selectors(expression: str) -> list[Selector]:
    """Return every selector of an expression.

    Raises:
        ValueError: The expression is invalid.
    """
    return list(_walk(promql_parser.parse(expression), frozenset()))


def _walk(node: Any, by: frozenset[str]) -> Iterator[Selector]:
    if isinstance(node, promql_parser.VectorSelector):
        assert node.name, "a selector without a metric name reads every series"
        found = tuple((each.name, str(each.op), each.value) for each in node.matchers.matchers)
        yield Selector(node.name, found, by)
        return
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql_parser.AggregateExpr) and modifier is not None:
        assert str(modifier.type) == "AggModifierType.By", "use by, not without, in aggregations"
        by |= set(modifier.labels)
    for part in _PARTS:
        inner = getattr(node, part, None)
        if inner is not None and not isinstance(inner, str | float | int):
            yield from _walk(inner, by)
    for argument in getattr(node, "args", None) or ():
        yield from _walk(argument, by)
