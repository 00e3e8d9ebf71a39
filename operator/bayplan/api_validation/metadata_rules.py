"""Rules for metadata, labels and label selectors.

Follows apimachinery v0.37.1, pkg/api/validation/objectmeta.go and pkg/apis/meta/v1/validation. The namespace is not
required, because kubectl sets it, and is ignored for kinds without one, as by kubectl.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from bayplan.api_validation.field_errors import (
    FieldErrors,
    Messages,
    dns_label,
    entries,
    label_value,
    path_segment,
    qualified_name,
    text,
    texts,
)

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
