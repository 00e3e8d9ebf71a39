"""Rules for metadata and labels, and for what selects by them: selectors, affinity, tolerations, taints, spreading.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go, and apimachinery v0.37.1, pkg/api/validation and
pkg/apis/meta/v1/validation. The namespace is not required, because kubectl sets it, and is ignored for kinds without
one, as by kubectl.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bayplan.api_validation.field_errors import (
    Fields,
    Form,
    dns_label,
    dns_subdomain,
    label_value,
    path_segment,
    qualified_name,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def affinity_problems(affinity: Fields, labels: Mapping[str, Any]) -> None:
    """Validate the affinity of a pod with some labels; a template has none."""
    node = affinity.part("nodeAffinity")
    if node.get(_REQUIRED) is not None:
        node_selector_problems(node.part(_REQUIRED))
    for each in node.parts(_PREFERRED):
        _weight_problems(each)
        _node_term_problems(each.part("preference"), allow_invalid_values=True)
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.part(field)
        for each in pods.parts(_REQUIRED):
            _pod_term_problems(each, labels)
        for each in pods.parts(_PREFERRED):
            _weight_problems(each)
            _pod_term_problems(each.part("podAffinityTerm"), labels)


def node_selector_problems(selector: Fields) -> None:
    selector.require("nodeSelectorTerms", detail="must have at least one node selector term")
    for term in selector.parts("nodeSelectorTerms"):
        _node_term_problems(term)


def toleration_problems(tolerations: list[Fields]) -> None:
    """Validate tolerations, without the alpha operators Lt and Gt."""
    for each in tolerations:
        key, operator, value, effect = map(each.text, ("key", "operator", "value", "effect"))
        if key:
            each.check("key", qualified_name)
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            each.invalid("operator", operator, detail)
        if each.get("tolerationSeconds") is not None and effect != "NoExecute":
            each.invalid("effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("", "Equal"):
            each.check("value", label_value)
        elif operator == "Exists":
            if value:
                each.invalid("operator", value, "value must be empty when `operator` is 'Exists'")
        else:
            each.unsupported("operator", operator, ("Equal", "Exists"))
        each.choice("effect", _EFFECTS)


def taint_problems(taints: list[Fields]) -> None:
    seen = set[tuple[str, str]]()
    for each in taints:
        key, effect = each.text("key"), each.text("effect")
        each.check("key", qualified_name)
        each.check("value", label_value)
        each.choice("effect", _EFFECTS, is_required=True)
        each.unique("", (key, effect), seen, f"{key}:{effect}")


def spread_problems(constraints: list[Fields], labels: Mapping[str, Any]) -> None:
    """Validate topology spread constraints of a pod with some labels; a template has none."""
    seen = set[tuple[str, str]]()
    for each in constraints:
        key, action, skew = each.text("topologyKey"), each.text("whenUnsatisfiable"), each.number("maxSkew")
        if skew <= 0:
            each.invalid("maxSkew", skew, "must be greater than zero")
        each.require("topologyKey", detail="can not be empty")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            each.unsupported("whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        each.unique("{topologyKey, whenUnsatisfiable}", (key, action), seen, f"{{{key}, {action}}}")
        minimum = each.get("minDomains")
        if minimum is not None and minimum <= 0:
            each.invalid("minDomains", minimum, "must be greater than zero")
        if minimum is not None and action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            each.invalid("minDomains", minimum, detail)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            each.one_of(field, ("Honor", "Ignore"))
        _label_key_problems(each, labels)
        selector_problems(each.part("labelSelector"))


def _weight_problems(term: Fields) -> None:
    if not 1 <= term.number("weight") <= 100:
        term.invalid("weight", term.number("weight"), "must be in the range 1-100")


def _node_term_problems(term: Fields, *, allow_invalid_values: bool = False) -> None:
    for each in term.parts("matchExpressions"):
        operator, values = each.text("operator"), each.texts("values")
        if operator in ("Gt", "Lt"):
            if len(values) != 1:
                each.required("values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
        elif not _check_values(each):
            detail = "not a valid selector operator; use In, NotIn, Exists, DoesNotExist, Gt or Lt"
            each.invalid("operator", operator, detail)
        each.check("key", qualified_name)
        if not allow_invalid_values:
            each.check_each("values", label_value)
    for each in term.parts("matchFields"):
        key, operator, values = each.text("key"), each.text("operator"), each.texts("values")
        if operator not in ("In", "NotIn"):
            each.invalid("operator", operator, "not a valid selector operator; use In or NotIn")
        elif len(values) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            each.required("values", detail)
        if key != "metadata.name":
            each.invalid("key", key, "not a valid field selector key; use metadata.name")
        else:
            each.check_each("values", dns_subdomain)


def _check_values(expression: Fields) -> bool:
    """Validate whether an expression has values; return False for an operator other than the four of labels."""
    operator, values = expression.text("operator"), expression.texts("values")
    if operator in ("In", "NotIn"):
        if not values:
            expression.required("values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator not in ("Exists", "DoesNotExist"):
        return False
    elif values:
        expression.forbidden("values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    return True


def _pod_term_problems(term: Fields, labels: Mapping[str, Any]) -> None:
    for field in ("labelSelector", "namespaceSelector"):
        selector_problems(term.part(field))
    term.check_each("namespaces", dns_label)
    _label_key_problems(term, labels)
    term.name("topologyKey", qualified_name, "can not be empty")


def _label_key_problems(term: Fields, labels: Mapping[str, Any]) -> None:
    """Validate matchLabelKeys and mismatchLabelKeys against the label selector.

    The API server first merges matchLabelKeys that are labels of the pod into the selector, and only then rejects a key
    that occurs twice, so a key in ``matchLabels`` alone is valid for a pod without the label.
    """
    keys, others = term.texts("matchLabelKeys"), term.texts("mismatchLabelKeys")
    has_selector = term.get("labelSelector") is not None
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if has_selector:
            term.check_each(field, qualified_name)
        elif term.get(field):
            term.forbidden(field, "must not be specified when labelSelector is not set")
    for index, each in enumerate(keys):
        if has_selector and _occurs_twice(each, keys.count(each), term.part("labelSelector"), labels):
            term.invalid(f"matchLabelKeys[{index}]", each, "exists in both matchLabelKeys and labelSelector")
        if each in others:
            term.invalid(f"matchLabelKeys[{index}]", each, "exists in both matchLabelKeys and mismatchLabelKeys")


def _occurs_twice(key: str, times: int, selector: Fields, labels: Mapping[str, Any]) -> bool:
    expressions = [each.value for each in selector.parts("matchExpressions") if each.text("key") == key]
    merged = {"key": key, "operator": "In", "values": [labels.get(key)]}
    count = len(expressions) + (times if key in labels and merged not in expressions else 0)
    return count > 1 or (count == 1 and key in selector.mapping("matchLabels"))


_MAX_ANNOTATIONS = 256 * 1024
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_MAX_PREFIX = 58
_GENERATED = "x" * 5


def metadata_problems(
    metadata: Fields, name_format: Form, *, standard_finalizers: bool = True, checks_prefix: bool = True
) -> None:
    """Validate an object's metadata.

    Args:
        standard_finalizers: Whether a finalizer without a domain must be one of Kubernetes' own.
        checks_prefix: Whether generateName must have the format of a name, and not only the name made of it.
    """
    prefix = metadata.text("generateName")
    name = metadata.text("name") or (prefix and prefix[:_MAX_PREFIX] + _GENERATED)
    if prefix:
        # A dash at the end is replaced with the character before it, as by maskTrailingDash.
        masked = f"{prefix[:-2]}a" if prefix[1:].endswith("-") else prefix
        metadata.invalid("generateName", prefix, *path_segment(f"{prefix}x"))
        if checks_prefix:
            metadata.invalid("generateName", prefix, *name_format(masked))
    if name:
        metadata.invalid("name", name, *name_format(name), *path_segment(name))
    else:
        metadata.required("name", "name or generateName is required")
    metadata.name("namespace", dns_label, is_required=False)
    label_problems(metadata, "labels")
    annotation_problems(metadata)
    _owner_problems(metadata)
    finalizers = metadata.texts("finalizers")
    finalizer_problems(metadata, _STANDARD_FINALIZERS if standard_finalizers else finalizers)
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        metadata.invalid("finalizers", finalizers, "finalizers orphan and foregroundDeletion cannot be both set")


def template_metadata_problems(metadata: Fields) -> None:
    """Validate the metadata of a template of a claim, which may have labels and annotations only."""
    annotation_problems(metadata)
    label_problems(metadata, "labels")
    for field, value in metadata.value.items():
        if field not in ("annotations", "labels") and value not in (None, "", 0):  # An empty list is set, too.
            metadata.forbidden(field, "cannot be set")


def finalizer_problems(owner: Fields, standard: Collection[str]) -> None:
    for index, name in enumerate(owner.texts("finalizers")):
        owner.invalid(f"finalizers[{index}]", name, *qualified_name(name))
        if "/" not in name and name not in standard:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            owner.invalid(f"finalizers[{index}]", name, detail)


def label_problems(owner: Fields, field: str) -> None:
    """Validate labels, or a selector that is a map of labels."""
    for key, value in owner.mapping(field).items():
        messages = (*qualified_name(key), *label_value(value or ""))
        if messages:
            owner.invalid(f"{field}[{key}]", key if qualified_name(key) else value or "", *messages)


def annotation_problems(metadata: Fields) -> None:
    annotations = metadata.mapping("annotations")
    for key in annotations:
        metadata.invalid(f"annotations[{key}]", key, *qualified_name(key.lower()))
    if sum(len(key.encode()) + len((value or "").encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        metadata.too_long("annotations", _MAX_ANNOTATIONS)


def selector_problems(selector: Fields) -> None:
    label_problems(selector, "matchLabels")
    for each in selector.parts("matchExpressions"):
        if not _check_values(each):
            detail = "not a valid selector operator; use In, NotIn, Exists or DoesNotExist"
            each.invalid("operator", each.text("operator"), detail)
        each.check("key", qualified_name)
        each.check_each("values", label_value)


def selects(selector: Fields, labels: Mapping[str, Any]) -> bool:
    if any(labels.get(key) != value for key, value in selector.mapping("matchLabels").items()):
        return False
    for each in selector.parts("matchExpressions"):
        key, values = each.text("key"), each.texts("values")
        has = {
            "In": labels.get(key) in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not has.get(each.text("operator"), True):
            return False
    return True


def _owner_problems(metadata: Fields) -> None:
    controllers = 0
    references = metadata.parts("ownerReferences")
    for index, each in enumerate(references):
        if any(each.value == other.value for other in references[:index]):
            continue  # The API server drops a repeated reference.
        version = each.text("apiVersion")
        if not version:
            each.required("apiVersion", "must not be empty")
        elif version.count("/") > 1 or version.endswith("/"):
            each.invalid("apiVersion", version, "must be <group>/<version> or <version>")
        each.require("kind", "name", "uid", detail="must not be empty")
        if (version, each.text("kind")) == ("v1", "Event"):
            each.invalid("", version, "/v1, Kind=Event is disallowed from being an owner")
        controllers += bool(each.get("controller"))
    if controllers > 1:
        metadata.invalid("ownerReferences", [], "Only one reference can have Controller set to true")
