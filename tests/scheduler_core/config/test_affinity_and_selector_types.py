"""Validation of Kubernetes types in plugin args: node affinity, selectors, spread constraints."""

from __future__ import annotations

from typing import Any

from scheduler_core.config.plugin_args import NodeAffinity, TopologySpreadConstraint
from scheduler_core.config.validation import validate
from tests.support.problems import problems_in
from tests.support.tables import table

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def labels(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def fields(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


def problems(term: dict[str, Any]) -> list[str]:
    return problems_in(lambda: validate(NodeAffinity, {REQUIRED: {"nodeSelectorTerms": [term]}}))


@table(
    "term",
    ("in", labels("In", "a", "b")),
    ("not-in-empty-value", labels("NotIn", "")),
    ("exists", labels("Exists")),
    ("does-not-exist", labels("DoesNotExist")),
    ("greater", labels("Gt", "5")),
    ("largest-number", labels("Lt", "9223372036854775807")),
    ("leading-zeros", labels("Gt", "007")),
    ("field", fields("In", "node-1")),
    ("not-field", fields("NotIn", "node-1")),
    ("term-that-selects-nothing", {}),
)
def test_valid_terms(term: dict[str, Any]) -> None:
    """Terms that kube-scheduler compiles are valid."""
    assert problems(term) == []


LABEL = f"{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
FIELD = f"{REQUIRED}.nodeSelectorTerms[0].matchFields[0]"


@table(
    "term, expected",
    ("in-nothing", labels("In"), f"{LABEL}.values: must have at least one value with operator In"),
    ("not-in-nothing", labels("NotIn"), f"{LABEL}.values: must have at least one value"),
    ("exists-value", labels("Exists", "a"), f"{LABEL}.values: must be empty with operator Exists"),
    ("does-not-exist-value", labels("DoesNotExist", "a"), f"{LABEL}.values: must be empty"),
    ("greater-than-text", labels("Gt", "a"), f"{LABEL}.values: must be one integer"),
    ("greater-than-two", labels("Gt", "1", "2"), f"{LABEL}.values: must be one integer"),
    ("greater-than-nothing", labels("Gt"), f"{LABEL}.values: must be one integer"),
    ("too-large", labels("Lt", "9223372036854775808"), f"{LABEL}.values: must be one integer"),
    ("bad-value", labels("In", "a b"), f'{LABEL}.values[0]: "a b" is not a label value'),
    ("operator", labels("in", "a"), f"{LABEL}.operator: must be one of In, NotIn"),
    ("key", labels("Exists", key="a b"), f'{LABEL}.key: "a b" must have'),
    ("field-operator", fields("Exists"), f"{FIELD}.operator: must be one of In, NotIn,"),
    ("field-nothing", fields("In"), f"{FIELD}.values: must have exactly one value"),
    ("field-two", fields("In", "a", "b"), f"{FIELD}.values: must have exactly one value"),
)
def test_invalid_terms(term: dict[str, Any], expected: str) -> None:
    """Terms that kube-scheduler cannot compile are reported once, with their location."""
    found = problems(term)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_a_number_of_many_digits() -> None:
    """A number with 10,000 digits is rejected without conversion."""
    assert f"{LABEL}.values: must be one integer as text with operator Gt" in problems(labels("Gt", "9" * 10_000))


def test_preferred_terms_without_weight_are_ignored() -> None:
    """A preferred term is only validated if its weight is not 0."""
    document = {PREFERRED: [{"weight": weight, "preference": labels("Like")} for weight in (0, 1, -1)]}
    paths = [problem.partition(":")[0] for problem in problems_in(lambda: validate(NodeAffinity, document))]
    assert paths == [f"{PREFERRED}[{index}].preference.matchExpressions[0].operator" for index in (1, 2)]


@table(
    "extra, expected",
    ("required-fields-only", {}, []),
    ("all-fields", {"minDomains": 2, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}, []),
    ("unknown-policy", {"nodeTaintsPolicy": "Obey"}, ['nodeTaintsPolicy: must be one of Honor, Ignore, not "Obey"']),
    ("skew", {"maxSkew": 2**31}, ["maxSkew: must be at most 2147483647, not 2147483648"]),
    ("key", {"topologyKey": ""}, ["topologyKey: must not be empty; set the node label whose values are the domains"]),
)
def test_spread_constraints(extra: dict[str, Any], expected: list[str]) -> None:
    """A constraint has the same fields and rules as in a pod's spec."""
    document = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **extra}
    assert problems_in(lambda: validate(TopologySpreadConstraint, document)) == expected
