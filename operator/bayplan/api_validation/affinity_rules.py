"""Rules for node selectors, affinity, tolerations, taints and topology spread constraints.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayplan.api_validation.field_errors import (
    FieldErrors,
    dns_label,
    dns_subdomain,
    entries,
    label_value,
    mapping,
    qualified_name,
    text,
    texts,
)
from bayplan.api_validation.metadata_rules import selector_problems

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def affinity_problems(found: FieldErrors, affinity: Mapping[str, Any], path: str, labels: Mapping[str, Any]) -> None:
    """Validate the affinity of a pod with some labels; a template has none."""
    node = mapping(affinity, "nodeAffinity")
    if node.get(_REQUIRED) is not None:
        node_selector_problems(found, node[_REQUIRED], f"{path}.nodeAffinity.{_REQUIRED}")
    for index, each in entries(node, _PREFERRED):
        where = f"{path}.nodeAffinity.{_PREFERRED}[{index}]"
        _weight_problems(found, each, where)
        _node_term_problems(found, mapping(each, "preference"), f"{where}.preference", allow_invalid_values=True)
    for field in ("podAffinity", "podAntiAffinity"):
        pods = mapping(affinity, field)
        for index, each in entries(pods, _REQUIRED):
            _pod_term_problems(found, each, f"{path}.{field}.{_REQUIRED}[{index}]", labels)
        for index, each in entries(pods, _PREFERRED):
            where = f"{path}.{field}.{_PREFERRED}[{index}]"
            _weight_problems(found, each, where)
            _pod_term_problems(found, mapping(each, "podAffinityTerm"), f"{where}.podAffinityTerm", labels)


def node_selector_problems(
    found: FieldErrors, selector: Mapping[str, Any], path: str, *, allow_invalid_values: bool = False
) -> None:
    terms = entries(selector, "nodeSelectorTerms")
    if not terms:
        found.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in terms:
        _node_term_problems(
            found, term, f"{path}.nodeSelectorTerms[{index}]", allow_invalid_values=allow_invalid_values
        )


def toleration_problems(found: FieldErrors, tolerations: Sequence[tuple[int, Mapping[str, Any]]], path: str) -> None:
    """Validate tolerations, without the alpha operators Lt and Gt."""
    for index, each in tolerations:
        where = f"{path}[{index}]"
        key, operator, value, effect = (text(each, field) for field in ("key", "operator", "value", "effect"))
        if key:
            found.check(f"{where}.key", key, qualified_name)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.invalid(f"{where}.operator", operator, detail)
        if each.get("tolerationSeconds") is not None and effect != "NoExecute":
            found.invalid(f"{where}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("", "Equal"):
            found.check(f"{where}.value", value, label_value)
        elif operator == "Exists":
            if value:
                found.invalid(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'")
        else:
            found.unsupported(f"{where}.operator", operator, ("Equal", "Exists"))
        found.choice(f"{where}.effect", effect, _EFFECTS)


def taint_problems(found: FieldErrors, taints: Sequence[tuple[int, Mapping[str, Any]]], path: str) -> None:
    seen = set[tuple[str, str]]()
    for index, each in taints:
        where = f"{path}[{index}]"
        key, effect = text(each, "key"), text(each, "effect")
        found.check(f"{where}.key", key, qualified_name)
        found.check(f"{where}.value", text(each, "value"), label_value)
        found.choice(f"{where}.effect", effect, _EFFECTS, is_required=True)
        found.unique(where, (key, effect), seen, f"{key}:{effect}")


def spread_problems(
    found: FieldErrors, constraints: Sequence[tuple[int, Mapping[str, Any]]], path: str, labels: Mapping[str, Any]
) -> None:
    """Validate topology spread constraints of a pod with some labels; a template has none."""
    seen = set[tuple[str, str]]()
    for index, each in constraints:
        where = f"{path}[{index}]"
        key, action = text(each, "topologyKey"), text(each, "whenUnsatisfiable")
        skew = each.get("maxSkew") or 0
        if skew <= 0:
            found.invalid(f"{where}.maxSkew", skew, "must be greater than zero")
        if not key:
            found.required(f"{where}.topologyKey", "can not be empty")
        found.one_of(f"{where}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        found.unique(f"{where}.{{topologyKey, whenUnsatisfiable}}", (key, action), seen, f"{{{key}, {action}}}")
        _minimum_problems(found, each, where, action)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            found.one_of(f"{where}.{field}", each.get(field), ("Honor", "Ignore"))
        _label_key_problems(found, each, where, labels)
        selector_problems(found, each.get("labelSelector"), f"{where}.labelSelector")


def _minimum_problems(found: FieldErrors, constraint: Mapping[str, Any], path: str, action: str) -> None:
    minimum = constraint.get("minDomains")
    if minimum is None:
        return
    if minimum <= 0:
        found.invalid(f"{path}.minDomains", minimum, "must be greater than zero")
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        found.invalid(f"{path}.minDomains", minimum, detail)


def _weight_problems(found: FieldErrors, term: Mapping[str, Any], path: str) -> None:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        found.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _node_term_problems(found: FieldErrors, term: Mapping[str, Any], path: str, *, allow_invalid_values: bool) -> None:
    for index, each in entries(term, "matchExpressions"):
        where = f"{path}.matchExpressions[{index}]"
        key, operator, values = text(each, "key"), text(each, "operator"), texts(each, "values")
        if operator in ("In", "NotIn"):
            if not values:
                found.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.forbidden(f"{where}.values", detail)
        elif operator in ("Gt", "Lt"):
            if len(values) != 1:
                found.required(f"{where}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        else:
            detail = "not a valid selector operator; use In, NotIn, Exists, DoesNotExist, Gt or Lt"
            found.invalid(f"{where}.operator", operator, detail)
        found.check(f"{where}.key", key, qualified_name)
        for number, value in enumerate(() if allow_invalid_values else values):
            found.check(f"{where}.values[{number}]", value, label_value)
    for index, each in entries(term, "matchFields"):
        where = f"{path}.matchFields[{index}]"
        key, operator, values = text(each, "key"), text(each, "operator"), texts(each, "values")
        if operator not in ("In", "NotIn"):
            found.invalid(f"{where}.operator", operator, "not a valid selector operator; use In or NotIn")
        elif len(values) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            found.required(f"{where}.values", detail)
        if key != "metadata.name":
            found.invalid(f"{where}.key", key, "not a valid field selector key; use metadata.name")
        else:
            for number, value in enumerate(values):
                found.check(f"{where}.values[{number}]", value, dns_subdomain)


def _pod_term_problems(found: FieldErrors, term: Mapping[str, Any], path: str, labels: Mapping[str, Any]) -> None:
    for field in ("labelSelector", "namespaceSelector"):
        selector_problems(found, term.get(field), f"{path}.{field}")
    for index, each in enumerate(texts(term, "namespaces")):
        found.check(f"{path}.namespaces[{index}]", each, dns_label)
    _label_key_problems(found, term, path, labels)
    found.name(f"{path}.topologyKey", text(term, "topologyKey"), qualified_name, "can not be empty")


def _label_key_problems(found: FieldErrors, term: Mapping[str, Any], path: str, labels: Mapping[str, Any]) -> None:
    """Validate matchLabelKeys and mismatchLabelKeys against the label selector.

    The API server first merges matchLabelKeys that are labels of the pod into the selector, and only then rejects a key
    that occurs twice, so a key in ``matchLabels`` alone is valid for a pod without the label.
    """
    keys, others = texts(term, "matchLabelKeys"), texts(term, "mismatchLabelKeys")
    selector = term.get("labelSelector")
    for field, given in (("matchLabelKeys", keys), ("mismatchLabelKeys", others)):
        if given and selector is None:
            found.forbidden(f"{path}.{field}", "must not be specified when labelSelector is not set")
            continue
        for index, each in enumerate(given):
            found.check(f"{path}.{field}[{index}]", each, qualified_name)
    for index, each in enumerate(keys):
        if selector is not None and _occurs_twice(each, keys.count(each), selector, labels):
            found.invalid(f"{path}.matchLabelKeys[{index}]", each, "exists in both matchLabelKeys and labelSelector")
        if each in others:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            found.invalid(f"{path}.matchLabelKeys[{index}]", each, detail)


def _occurs_twice(key: str, times: int, selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    expressions = [each for _, each in entries(selector, "matchExpressions") if text(each, "key") == key]
    merged = {"key": key, "operator": "In", "values": [labels.get(key)]}
    count = len(expressions) + (times if key in labels and merged not in expressions else 0)
    return count > 1 or (count == 1 and key in mapping(selector, "matchLabels"))
