"""Rules for metadata and labels, and for what selects by them: selectors, affinity, tolerations, taints, spreading.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go, and apimachinery v0.37.1, pkg/api/validation and
pkg/apis/meta/v1/validation. The namespace is not required, because kubectl sets it, and is ignored for kinds without
one, as by kubectl.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from bayplan.api_validation.field_errors import (
    FieldErrors,
    Messages,
    dns_label,
    dns_subdomain,
    entries,
    label_value,
    mapping,
    path_segment,
    qualified_name,
    text,
    texts,
)

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


NameFormat = Callable[[str], Messages]

_MAX_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_MAX_PREFIX = 58
_GENERATED = "x" * 5
_EXISTS = ("Exists", "DoesNotExist")


def metadata_problems(
    found: FieldErrors,
    metadata: Mapping[str, Any],
    name_format: NameFormat,
    *,
    standard_finalizers: bool = True,
    checks_prefix: bool = True,
) -> None:
    """Validate an object's metadata.

    Args:
        standard_finalizers: Whether a finalizer without a domain must be one of Kubernetes' own.
        checks_prefix: Whether generateName must have the format of a name, and not only the name made of it.
    """
    prefix = text(metadata, "generateName")
    name = text(metadata, "name") or (prefix and prefix[:_MAX_PREFIX] + _GENERATED)
    if prefix:
        # A dash at the end is replaced with the character before it, as by maskTrailingDash.
        masked = f"{prefix[:-2]}a" if prefix[1:].endswith("-") else prefix
        found.invalid("metadata.generateName", prefix, *path_segment(f"{prefix}x"))
        if checks_prefix:
            found.invalid("metadata.generateName", prefix, *name_format(masked))
    if name:
        found.invalid("metadata.name", name, *name_format(name), *path_segment(name))
    else:
        found.required("metadata.name", "name or generateName is required")
    found.name("metadata.namespace", text(metadata, "namespace"), dns_label, is_required=False)
    label_problems(found, metadata.get("labels"), "metadata.labels")
    annotation_problems(found, metadata.get("annotations"), "metadata.annotations")
    _owner_problems(found, metadata)
    finalizers = texts(metadata, "finalizers")
    for index, each in enumerate(finalizers):
        standard = _STANDARD_FINALIZERS if standard_finalizers else (each,)
        finalizer_problems(found, each, f"metadata.finalizers[{index}]", standard)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        found.invalid("metadata.finalizers", finalizers, "finalizers orphan and foregroundDeletion cannot be both set")


def finalizer_problems(found: FieldErrors, name: str, path: str, standard: Collection[str]) -> None:
    found.check(path, name, qualified_name)
    if "/" not in name and name not in standard:
        found.invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")


def label_problems(found: FieldErrors, labels: Mapping[str, Any] | None, path: str) -> None:
    """Validate labels, or a selector that is a map of labels."""
    for key, value in (labels or {}).items():
        messages = (*qualified_name(key), *label_value(value or ""))
        if messages:
            found.invalid(f"{path}[{key}]", key if qualified_name(key) else value or "", *messages)


def annotation_problems(found: FieldErrors, annotations: Mapping[str, Any] | None, path: str) -> None:
    if not annotations:
        return
    for key in annotations:
        found.invalid(f"{path}[{key}]", key, *qualified_name(key.lower()))
    if sum(len(key.encode()) + len((value or "").encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        found.too_long(path, _MAX_ANNOTATIONS)


def selector_problems(
    found: FieldErrors, selector: Mapping[str, Any] | None, path: str, *, allow_invalid_values: bool = False
) -> None:
    if not selector:
        return
    label_problems(found, selector.get("matchLabels"), f"{path}.matchLabels")
    for index, each in entries(selector, "matchExpressions"):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = text(each, "operator"), texts(each, "values")
        if operator in ("In", "NotIn"):
            if not values:
                found.required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in _EXISTS:
            if values:
                found.forbidden(f"{where}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        else:
            found.invalid(
                f"{where}.operator", operator, "not a valid selector operator; use In, NotIn, Exists or DoesNotExist"
            )
        found.check(f"{where}.key", text(each, "key"), qualified_name)
        if not allow_invalid_values:
            for number, value in enumerate(values):
                found.check(f"{where}.values[{number}]", value, label_value)


def selects(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for _, each in entries(selector, "matchExpressions"):
        key, values = text(each, "key"), texts(each, "values")
        has = {
            "In": labels.get(key) in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not has.get(text(each, "operator"), True):
            return False
    return True


def _owner_problems(found: FieldErrors, metadata: Mapping[str, Any]) -> None:
    controllers = 0
    references = entries(metadata, "ownerReferences")
    for index, each in references:
        if any(each == other for _, other in references[:index]):
            continue  # The API server drops a repeated reference.
        path = f"metadata.ownerReferences[{index}]"
        version = text(each, "apiVersion")
        if not version:
            found.required(f"{path}.apiVersion", "must not be empty")
        elif version.count("/") > 1 or version.endswith("/"):
            found.invalid(f"{path}.apiVersion", version, "must be <group>/<version> or <version>")
        for field in ("kind", "name", "uid"):
            if not text(each, field):
                found.required(f"{path}.{field}", "must not be empty")
        if (version, text(each, "kind")) == ("v1", "Event"):
            found.invalid(path, version, "/v1, Kind=Event is disallowed from being an owner")
        controllers += bool(each.get("controller"))
    if controllers > 1:
        found.invalid("metadata.ownerReferences", [], "Only one reference can have Controller set to true")
