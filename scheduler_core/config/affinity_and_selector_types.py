"""Kubernetes types in plugin args: node affinity, label selector, topology spread constraint.

``scheduler_core.model`` decodes what the API server has validated; these models validate what users write and report
the path of every problem. Source: component-helpers v0.37.1, scheduling/corev1/nodeaffinity.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from pydantic import Field

from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.name_validation import label_value_problems, qualified_name_problems

_LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")


class NodeSelectorRequirement(ConfigModel):
    """One requirement on a node's label or field."""

    key: str = Field(default="", description="Label key, or name of the field (metadata.name).")
    operator: str = Field(default="", description="In, NotIn, Exists, DoesNotExist, Gt or Lt.")
    values: tuple[str, ...] = Field(default=(), strict=False, description="Values for the operator.")


class NodeSelectorTerm(ConfigModel):
    """Requirements that must all match; a term without requirements matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = Field(default=(), strict=False)
    match_fields: tuple[NodeSelectorRequirement, ...] = Field(default=(), strict=False)


class NodeSelector(ConfigModel):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = Field(default=(), strict=False)

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check all requirements."""
        for index, term in enumerate(self.node_selector_terms):
            yield from _below(("nodeSelectorTerms", index), _term_problems(term))


class PreferredSchedulingTerm(ConfigModel):
    """A term that adds its weight to the score of matching nodes; a term with weight 0 is ignored."""

    weight: int = Field(default=0, ge=-INT32_MAX - 1, le=INT32_MAX)
    preference: NodeSelectorTerm = NodeSelectorTerm()

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the requirements of a term that is not ignored."""
        if self.weight != 0:
            yield from _below(("preference",), _term_problems(self.preference))


class NodeAffinity(ConfigModel):
    """Required and preferred terms."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = Field(
        default=(), strict=False
    )


class LabelSelectorRequirement(ConfigModel):
    """A requirement on a pod's label."""

    key: str = Field(min_length=1)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = Field(default=(), strict=False)


class LabelSelector(ConfigModel):
    """Selects pods by labels; empty selects all."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = Field(default=(), strict=False)


class TopologySpreadConstraint(ConfigModel):
    """A topology spread constraint in the grammar of the pod's spec."""

    max_skew: int = Field(gt=0, le=INT32_MAX)
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    min_domains: int | None = Field(default=None, le=INT32_MAX)
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    match_label_keys: tuple[str, ...] = Field(default=(), strict=False)

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the topology key is a label key."""
        if not self.topology_key:
            yield RuleProblem(("topologyKey",), "must not be empty; set the node label whose values are the domains")
            return
        for message in qualified_name_problems(self.topology_key):
            yield RuleProblem(("topologyKey",), message)


def _term_problems(term: NodeSelectorTerm) -> Iterator[RuleProblem]:
    for index, requirement in enumerate(term.match_expressions):
        yield from _below(("matchExpressions", index), _label_requirement_problems(requirement))
    for index, requirement in enumerate(term.match_fields):
        yield from _below(("matchFields", index), _field_requirement_problems(requirement))


def _label_requirement_problems(requirement: NodeSelectorRequirement) -> Iterator[RuleProblem]:
    for message in qualified_name_problems(requirement.key):
        yield RuleProblem(("key",), message)
    check = _VALUE_CHECKS.get(requirement.operator)
    if check is None:
        yield _unknown_operator(requirement.operator, _LABEL_OPERATORS)
        return
    if message := check(requirement.values):
        yield RuleProblem(("values",), f"{message} with operator {requirement.operator}")
    for index, value in enumerate(requirement.values):
        for message in label_value_problems(value):
            yield RuleProblem(("values", index), message)


def _field_requirement_problems(requirement: NodeSelectorRequirement) -> Iterator[RuleProblem]:
    if requirement.operator not in _FIELD_OPERATORS:
        yield _unknown_operator(requirement.operator, _FIELD_OPERATORS)
    elif len(requirement.values) != 1:
        yield RuleProblem(("values",), "must have exactly one value in matchFields")


def _unknown_operator(operator: str, known: tuple[str, ...]) -> RuleProblem:
    return RuleProblem(("operator",), f'must be one of {", ".join(known)}, not "{operator}"')


def _needs_some(values: tuple[str, ...]) -> str:
    return "" if values else "must have at least one value"


def _needs_none(values: tuple[str, ...]) -> str:
    return "must be empty" if values else ""


def _needs_one_number(values: tuple[str, ...]) -> str:
    # A label value has at most 63 characters, and Python parses longer numbers slowly.
    digits = values[0] if len(values) == 1 and len(values[0]) <= 63 else ""
    if digits.isascii() and digits.isdigit() and int(digits) <= INT64_MAX:
        return ""
    return "must be one integer as text"


_VALUE_CHECKS: dict[str, Callable[[tuple[str, ...]], str]] = {
    "In": _needs_some,
    "NotIn": _needs_some,
    "Exists": _needs_none,
    "DoesNotExist": _needs_none,
    "Gt": _needs_one_number,
    "Lt": _needs_one_number,
}


def _below(location: tuple[str | int, ...], problems: Iterable[RuleProblem]) -> Iterator[RuleProblem]:
    for problem in problems:
        yield RuleProblem((*location, *problem.location), problem.message)
