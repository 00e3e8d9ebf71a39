"""The API server's validation of an object's metadata.

Follows apimachinery v0.37.1: pkg/api/validation/objectmeta.go, pkg/util/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bayplan.resources.crd_rules import DNS_NAME_PATTERN
from bayplan.resources.resource_model import MAX_NAME_LENGTH
from scheduler_core.config.name_validation import label_value_problems, qualified_name_problems
from scheduler_core.config.validation import did_you_mean, field_path
from scheduler_core.errors import Problem

_FIELDS = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
]
_MAX_NAMESPACE, _MAX_ANNOTATIONS = 63, 256 * 1024
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def metadata_problems(metadata: Any) -> Iterator[Problem]:
    """Validate metadata.

    Args:
        metadata: Metadata as written.

    Yields:
        Every problem; paths begin with ``metadata``.
    """
    if not isinstance(metadata, Mapping):
        yield Problem("metadata", "is required; add it with a name")
        return
    for name in metadata:
        if name not in _FIELDS:
            hint = did_you_mean(str(name), _FIELDS)
            yield Problem(f"metadata.{name}", f"unknown field; remove it or correct its name{hint}")
    yield from _name_problems(metadata.get("name"), metadata.get("namespace"))
    for field in ("labels", "annotations"):
        found = metadata.get(field)
        if found is None:
            continue
        if not isinstance(found, Mapping):
            yield Problem(f"metadata.{field}", "must be a mapping of names to values")
            continue
        for key, value in found.items():
            place = field_path(f"metadata.{field}", (str(key),))
            if value is not None and not isinstance(value, str):
                yield Problem(place, "must be text; put it in quotes")
                continue
            key_problems = qualified_name_problems(str(key).lower() if field == "annotations" else str(key))
            value_problems = label_value_problems(value or "") if field == "labels" else []
            yield from (Problem(place, message) for message in (*key_problems, *value_problems))
    annotations = metadata.get("annotations")
    if isinstance(annotations, Mapping) and sum(len(f"{k}{v}".encode()) for k, v in annotations.items()) > (
        _MAX_ANNOTATIONS
    ):
        yield Problem("metadata.annotations", "must have at most 256 KiB in all; remove some")


def _name_problems(name: Any, namespace: Any) -> Iterator[Problem]:
    if not isinstance(name, str) or not name:
        yield Problem("metadata.name", "is required; add it")
    elif len(name) > MAX_NAME_LENGTH or not re.fullmatch(DNS_NAME_PATTERN, name):
        message = 'must be lower case letters, digits, "-" and ".", at most 253, with a letter or digit at both ends'
        yield Problem("metadata.name", message)
    if namespace is None or namespace == "":
        return
    if not isinstance(namespace, str) or len(namespace) > _MAX_NAMESPACE or not re.fullmatch(_DNS_LABEL, namespace):
        yield Problem("metadata.namespace", 'must be at most 63 lower case letters, digits and "-"')
