"""Compiled selectors: label selectors, node selectors, and terms of inter-pod affinity.

Compiled forms are hashable and canonical (equivalent requirements are equal), because they are cache keys, and because
pods are counted per distinct term. :mod:`scheduler_core.snapshot.node_selector_matching` evaluates the same
requirements on columns.

An invalid expression raises an error where nothing reports it later (label selectors, preferred terms, affinity in the
configuration). An invalid required term of a pod matches no node and does not affect the other terms.

Follows ``k8s.io/apimachinery`` v0.37.1 ``labels/selector.go``, ``fields/selector.go``, ``meta/v1/helpers.go``,
``k8s.io/component-helpers`` v0.37.1 ``scheduling/corev1/nodeaffinity`` and ``k8s.io/kube-scheduler`` v0.37.1
``framework/types.go`` (``AffinityTerm``).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from scheduler_core.errors import SelectorError, SelectorTooLargeError
from scheduler_core.model.affinity import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Requirement,
    WeightedPodAffinityTerm,
)
from scheduler_core.model.pod import Pod

IN = "In"
NOT_IN = "NotIn"
EXISTS = "Exists"
DOES_NOT_EXIST = "DoesNotExist"
GREATER_THAN = "Gt"
LESS_THAN = "Lt"

METADATA_NAME = "metadata.name"

_LABEL_OPERATORS = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)
_NODE_OPERATORS = (*_LABEL_OPERATORS, GREATER_THAN, LESS_THAN)

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_DNS_SUBDOMAIN_LIMIT = 253
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64_LIMIT = 2**63
_FEW_VALUES = 8


def parse_int64(text: str) -> int | None:
    """Parse a decimal integer like Go's ``strconv.ParseInt``; return None for anything else or beyond 64 bits."""
    if _INTEGER.fullmatch(text) is None:
        return None
    # Python refuses to parse integers of thousands of digits; without leading zeros, int64 has at most 19 digits.
    sign = "-" if text[0] == "-" else ""
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > 19:
        return None
    number = int(sign + digits)
    return number if -_INT64_LIMIT <= number < _INT64_LIMIT else None


def is_label_key(key: str) -> bool:
    """Return whether ``key`` is a label key: a name of up to 63 characters, optionally after a DNS prefix and "/"."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _DNS_SUBDOMAIN_LIMIT or _DNS_SUBDOMAIN.fullmatch(prefix) is None):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Return whether ``value`` is a label value: empty, or a name of up to 63 characters."""
    return not value or _NAME.fullmatch(value) is not None


class LabelRequirement(Struct, gc=False, frozen=True):
    """One condition on one label.

    Attributes:
        operator: One of the constants of this module.
        values: Values of In and NotIn, sorted and without duplicates; else empty.
        number: Value of Gt and Lt; else 0.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    number: int = 0

    def admits(self, value: str | None) -> bool:
        """Return whether an object whose label has ``value`` (None: no such label) matches the condition."""
        operator = self.operator
        if operator == IN:
            return value in self.values if len(self.values) <= _FEW_VALUES else self._lists(value)
        if operator == NOT_IN:
            return value not in self.values if len(self.values) <= _FEW_VALUES else not self._lists(value)
        if operator == EXISTS:
            return value is not None
        if operator == DOES_NOT_EXIST:
            return value is None
        number = None if value is None else parse_int64(value)
        if number is None:
            return False
        return number > self.number if operator == GREATER_THAN else number < self.number

    def _lists(self, value: str | None) -> bool:
        """Return whether a long list has a value; a selector may list ten thousands."""
        if value is None:
            return False
        found = bisect_left(self.values, value)
        return found < len(self.values) and self.values[found] == value


class LabelMatcher(Struct, gc=False, frozen=True):
    """A compiled label selector: requirements that must all match; ``nothing`` makes it match no object."""

    requirements: tuple[LabelRequirement, ...] = ()
    nothing: bool = False

    @property
    def is_everything(self) -> bool:
        return not (self.requirements or self.nothing)

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.nothing:
            return False
        for requirement in self.requirements:  # noqa: SIM110 - a generator costs as much as the whole match
            if not requirement.admits(labels.get(requirement.key)):
                return False
        return True


MATCH_EVERYTHING = LabelMatcher()
MATCH_NOTHING = LabelMatcher(nothing=True)


def equality_matcher(labels: Mapping[str, str]) -> LabelMatcher:
    """Return a matcher of objects that have all of ``labels``, without validation; {} matches all."""
    return LabelMatcher(_sorted(LabelRequirement(key, IN, (value,)) for key, value in labels.items()))


def all_of(matchers: Iterable[LabelMatcher]) -> LabelMatcher:
    requirements: set[LabelRequirement] = set()
    for matcher in matchers:
        if matcher.nothing:
            return MATCH_NOTHING
        requirements.update(matcher.requirements)
    return LabelMatcher(_sorted(requirements)) if requirements else MATCH_EVERYTHING


MOST_LISTED = 25_000
"""As many values as a pod may list; a selector of a megabyte would take a tenth of a second to compile."""


def compile_label_selector(selector: LabelSelector | None) -> LabelMatcher:
    """Compile ``metav1.LabelSelector``: an empty one matches everything, a missing one nothing.

    Raises:
        SelectorTooLargeError: It has more than :data:`MOST_LISTED` requirements and values.
    """
    if selector is None:
        return MATCH_NOTHING
    listed = len(selector.match_labels) + sum(1 + len(each.values) for each in selector.match_expressions)
    if listed > MOST_LISTED:
        message = f"the selector lists {listed} requirements and values, but at most {MOST_LISTED} are evaluated"
        raise SelectorTooLargeError(f"{message}; select by a label that all these objects have")
    requirements = {_label_requirement(Requirement(key, IN, (value,))) for key, value in selector.match_labels.items()}
    requirements.update(_label_requirement(expression) for expression in selector.match_expressions)
    return LabelMatcher(_sorted(requirements)) if requirements else MATCH_EVERYTHING


def _label_requirement(expression: Requirement) -> LabelRequirement:
    if expression.operator not in _LABEL_OPERATORS:
        raise SelectorError(_unknown_operator(expression, _LABEL_OPERATORS))
    return compile_requirement(expression)


def _sorted(requirements: Iterable[LabelRequirement]) -> tuple[LabelRequirement, ...]:
    return tuple(sorted(requirements, key=lambda one: (one.key, one.operator, one.values, one.number)))


def compile_requirement(expression: Requirement) -> LabelRequirement:
    """Compile one expression on a label of a pod or node. Raises SelectorError: it is invalid."""
    if len(expression.values) <= _FEW_VALUES:
        return _compiled_requirement(expression)
    return _compiled_requirement.__wrapped__(expression)


@lru_cache(maxsize=16_384)
def _compiled_requirement(expression: Requirement) -> LabelRequirement:
    key, operator, values = expression.key, expression.operator, expression.values
    if not is_label_key(key):
        raise SelectorError(f'"{key}" is not a label key: write a name, or a DNS prefix, a slash and a name')
    if operator not in _NODE_OPERATORS:
        raise SelectorError(_unknown_operator(expression, _NODE_OPERATORS))
    for value in values:
        if not is_label_value(value):
            raise SelectorError(
                f'"{value}" of key "{key}" is not a label value: use up to 63 letters, digits, "-", "_" and ".", '
                "with a letter or digit at both ends"
            )
    if operator in (IN, NOT_IN):
        if not values:
            raise SelectorError(f'key "{key}" with operator {operator} needs at least one value')
        return LabelRequirement(key, operator, tuple(sorted(set(values))))
    if operator in (EXISTS, DOES_NOT_EXIST):
        if values:
            raise SelectorError(f'key "{key}" with operator {operator} takes no values; remove them')
        return LabelRequirement(key, operator)
    number = parse_int64(values[0]) if len(values) == 1 else None
    if number is None:
        raise SelectorError(f'key "{key}" with operator {operator} needs exactly one value, a 64-bit integer')
    return LabelRequirement(key, operator, (), number)


def _unknown_operator(expression: Requirement, known: Sequence[str]) -> str:
    return f'operator "{expression.operator}" of key "{expression.key}" is unknown; use one of {", ".join(known)}'


class FieldRequirement(Struct, gc=False, frozen=True):
    """One condition on a node's field: equal to ``value``, or not equal if ``negated``."""

    key: str
    value: str
    negated: bool = False

    def admits(self, name: str) -> bool:
        """Return whether a node called ``name`` matches; other fields than the name count as empty."""
        actual = name if self.key == METADATA_NAME else ""
        return (actual == self.value) is not self.negated


class NodeTerm(Struct, gc=False, frozen=True):
    """A compiled node selector term; one with ``problems`` matches no node."""

    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()
    problems: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        return (
            not self.problems
            and all(requirement.admits(labels.get(requirement.key)) for requirement in self.labels)
            and all(requirement.admits(name) for requirement in self.fields)
        )


def _is_short(terms: Sequence[NodeSelectorTerm]) -> bool:
    """Return whether compiled terms are cached: users must not control the scheduler's memory by long ones."""
    if len(terms) > _FEW_VALUES:
        return False
    for term in terms:
        if len(term.match_fields) > _FEW_VALUES or len(term.match_expressions) > _FEW_VALUES:
            return False
        for expression in term.match_expressions:
            if len(expression.values) > _FEW_VALUES:
                return False
    return True


def compile_node_term(term: NodeSelectorTerm) -> NodeTerm | None:
    """Compile a term; None for an empty one, which matches no node."""
    if not (term.match_expressions or term.match_fields):
        return None
    problems: list[str] = []
    labels: set[LabelRequirement] = set()
    for expression in term.match_expressions:
        try:
            labels.add(compile_requirement(expression))
        except SelectorError as problem:
            problems.append(str(problem))
    fields: dict[FieldRequirement, None] = {}
    for expression in term.match_fields:
        try:
            fields[_field_requirement(expression)] = None
        except SelectorError as problem:
            problems.append(str(problem))
    if problems:
        return NodeTerm(problems=tuple(problems))
    return NodeTerm(_sorted(labels), tuple(fields))


def _field_requirement(expression: Requirement) -> FieldRequirement:
    if expression.operator not in (IN, NOT_IN):
        raise SelectorError(_unknown_operator(expression, (IN, NOT_IN)))
    if len(expression.values) != 1:
        raise SelectorError(f'field "{expression.key}" needs exactly one value; write a term for each')
    return FieldRequirement(expression.key, expression.values[0], expression.operator == NOT_IN)


class NodeMatcher(Struct, gc=False, frozen=True):
    """A compiled node selector: terms of which one must match; without terms it matches no node."""

    terms: tuple[NodeTerm, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(problem for term in self.terms for problem in term.problems)

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        return any(term.matches(labels, name) for term in self.terms)


def compile_node_selector(selector: NodeSelector) -> NodeMatcher:
    """Compile a node selector; invalid terms keep their problems and match nothing."""
    is_short = _is_short(selector.node_selector_terms)
    return _compiled_selector(selector) if is_short else _compiled_selector.__wrapped__(selector)


@lru_cache(maxsize=4096)
def _compiled_selector(selector: NodeSelector) -> NodeMatcher:
    terms = (compile_node_term(term) for term in selector.node_selector_terms)
    return NodeMatcher(tuple(term for term in terms if term is not None))


def compile_readable_node_selector(selector: NodeSelector) -> NodeMatcher:
    """Compile a node selector that must be entirely valid. Raises SelectorError: all problems of all terms."""
    matcher = compile_node_selector(selector)
    if matcher.problems:
        raise SelectorError("; ".join(matcher.problems))
    return matcher


class PreferredNodeTerm(Struct, gc=False, frozen=True):
    """A compiled preferred term: ``weight`` is added to the score of nodes that ``term`` matches."""

    weight: int
    term: NodeTerm


def compile_preferred_terms(terms: tuple[PreferredSchedulingTerm, ...]) -> tuple[PreferredNodeTerm, ...]:
    """Compile preferred terms; those of weight 0 and empty ones are skipped without validation."""
    is_short = _is_short([preferred.preference for preferred in terms])
    return _compiled_preferences(terms) if is_short else _compiled_preferences.__wrapped__(terms)


@lru_cache(maxsize=4096)
def _compiled_preferences(terms: tuple[PreferredSchedulingTerm, ...]) -> tuple[PreferredNodeTerm, ...]:
    compiled: list[PreferredNodeTerm] = []
    problems: list[str] = []
    for preferred in terms:
        term = compile_node_term(preferred.preference) if preferred.weight else None
        if term is not None:
            problems.extend(term.problems)
            compiled.append(PreferredNodeTerm(preferred.weight, term))
    if problems:
        raise SelectorError("; ".join(problems))
    return tuple(compiled)


class RequiredNodeAffinity(Struct, gc=False, frozen=True):
    """Requirements of a pod on its node's labels (``spec.nodeSelector`` and node affinity) and name."""

    node_selector: tuple[LabelRequirement, ...] = ()
    affinity: NodeMatcher | None = None

    @property
    def is_everything(self) -> bool:
        return not self.node_selector and self.affinity is None

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if not all(requirement.admits(labels.get(requirement.key)) for requirement in self.node_selector):
            return False
        return self.affinity is None or self.affinity.matches(labels, name)

    def problems(self, labels: Mapping[str, str], name: str) -> tuple[str, ...]:
        """Return the problems that leave open whether the node matches; empty if it matches anyway."""
        if self.affinity is None or self.matches(labels, name):
            return ()
        if not all(requirement.admits(labels.get(requirement.key)) for requirement in self.node_selector):
            return ()
        return self.affinity.problems


NO_REQUIRED_NODE_AFFINITY = RequiredNodeAffinity()


def required_node_affinity(pod: Pod) -> RequiredNodeAffinity:
    """Compile ``spec.nodeSelector``, without validation, and required node affinity."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = None if affinity is None or affinity.required is None else compile_node_selector(affinity.required)
    if required is None and not spec.node_selector:
        return NO_REQUIRED_NODE_AFFINITY
    labels = tuple(LabelRequirement(key, IN, (value,)) for key, value in sorted(spec.node_selector.items()))
    return RequiredNodeAffinity(labels, required)


class PodQuery(Struct, gc=False, frozen=True):
    """Selects pods by their labels, in namespaces that are named or, in addition, selected by labels."""

    selector: LabelMatcher
    namespaces: frozenset[str] = frozenset()
    namespace_selector: LabelMatcher = MATCH_NOTHING

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str] | None) -> bool:
        """Return whether the query selects a pod; *namespace_labels* are None if they are not known."""
        if namespace not in self.namespaces:
            everything = self.namespace_selector.is_everything
            if not everything and (namespace_labels is None or not self.namespace_selector.matches(namespace_labels)):
                return False
        return self.selector.matches(labels)


class AffinityTerm(Struct, gc=False, frozen=True):
    """A query with a topology key; ``weight`` is 0 for required terms."""

    query: PodQuery
    topology_key: str
    weight: int = 0


class AffinityTerms(Struct, gc=False, frozen=True):
    """All terms of one pod; ``problem`` is the reason why some are invalid; the list of their kind is then empty."""

    required: tuple[AffinityTerm, ...] = ()
    required_anti: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    preferred_anti: tuple[AffinityTerm, ...] = ()
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.required or self.required_anti or self.preferred or self.preferred_anti or self.problem)


NO_TERMS = AffinityTerms()


def affinity_terms(pod: Pod) -> AffinityTerms:
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    namespace = pod.metadata.namespace
    problems: list[str] = []

    def compiled(terms: Iterable[WeightedPodAffinityTerm]) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(_term(each.pod_affinity_term, namespace, each.weight) for each in terms)
        except SelectorError as error:
            problems.append(str(error))
            return ()

    near, apart = (each or PodAffinity() for each in (affinity.pod_affinity, affinity.pod_anti_affinity))
    required, required_anti = (
        compiled(WeightedPodAffinityTerm(0, term) for term in each.required) for each in (near, apart)
    )
    preferred, preferred_anti = compiled(near.preferred), compiled(apart.preferred)
    return AffinityTerms(required, required_anti, preferred, preferred_anti, "; ".join(problems))


def _term(term: PodAffinityTerm, own_namespace: str, weight: int) -> AffinityTerm:
    names = term.namespaces
    if not names and term.namespace_selector is None:
        names = (own_namespace,)
    query = PodQuery(
        compile_label_selector(term.label_selector),
        frozenset(names),
        compile_label_selector(term.namespace_selector),
    )
    return AffinityTerm(query, term.topology_key, weight)
