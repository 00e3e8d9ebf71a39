"""ResourceClaimTemplates that pods of a search name; they are read when it begins, because nothing watches them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bayplan.kube.http.api_request import ApiRequest, path_part
from bayplan.kube.http.connection import ApiConnection, Lane
from bayplan.kube.served_apis import DEVICE_GROUP, DEVICE_VERSIONS
from scheduler_core.errors import ConfigError, ForbiddenError, NotFoundError, Problem

KIND = "ResourceClaimTemplate"
MAX_TEMPLATES = 16
"""Maximum number of templates that are read for one request."""

_is_name = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?").fullmatch
"""Matches the names that objects may have: another one would be a part of another path."""

NamesByNamespace = Mapping[str, set[str]]


def named_templates(pods: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of the templates that manifests of pods, or of PodTemplates, name."""
    found = set()
    for each in pods:
        spec = each.get("spec")
        found |= _names(spec.get("resourceClaims") if isinstance(spec, Mapping) else None)
    return found


def _names(claims: object) -> set[str]:
    return {
        name
        for claim in (claims if isinstance(claims, list | tuple) else ())
        if isinstance(claim, Mapping) and isinstance(name := claim.get("resourceClaimTemplateName"), str)
    }


def missing_templates(objects: Iterable[Any], namespace: str) -> dict[str, set[str]]:
    """Return the templates that manifests of pods, workloads and groups name and do not contain, by namespace.

    Args:
        namespace: Namespace of objects without one.

    Raises:
        ConfigError: There are too many of them.
    """
    missing, written = dict[str, set[str]](), dict[str, set[str]]()
    for body in objects:
        if not isinstance(body, Mapping):
            continue
        meta = body.get("metadata")
        meta = meta if isinstance(meta, Mapping) else {}
        of_object = str(meta.get("namespace") or namespace)
        if body.get("kind") == KIND:
            written.setdefault(of_object, set()).add(str(meta.get("name")))
        else:
            missing.setdefault(of_object, set()).update(_names_within(body))
    found = {each: names - written.get(each, set()) for each, names in missing.items()}
    if sum(map(len, found.values())) > MAX_TEMPLATES:
        text = f"name more than {MAX_TEMPLATES} ResourceClaimTemplates that are not in the manifests; add them"
        raise ConfigError([Problem("objects", text)])
    return {each: names for each, names in found.items() if names}


def _names_within(body: object) -> set[str]:
    """Return the names of templates at any depth: those of workloads are in templates of pods."""
    found, left = set[str](), [body]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            found |= _names(value.get("resourceClaims"))
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return found


async def claim_template_manifests(
    connection: ApiConnection, namespace: str, names: Iterable[str]
) -> list[dict[str, Any]]:
    """Return templates of a namespace as manifests, without those that do not exist.

    Raises:
        ClusterWriteError: The API server refuses the request, or does not respond.
    """
    found: list[dict[str, Any]] = []
    if not _is_name(namespace):
        return found
    for name in sorted(filter(_is_name, names)):
        for version in DEVICE_VERSIONS:
            api = f"{DEVICE_GROUP}/{version}"
            path = f"/apis/{api}/namespaces/{path_part(namespace)}/resourceclaimtemplates/{path_part(name)}"
            try:
                body = await connection.request(ApiRequest("GET", path, lane=Lane.READS))
            except NotFoundError:
                continue
            found.append({**msgspec.json.decode(body), "apiVersion": api, "kind": KIND})
            break
    return found


async def read_templates(
    connection: ApiConnection, missing: NamesByNamespace
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return templates, and notices about unreadable ones; raises ClusterWriteError without a response."""
    found, notices = list[dict[str, Any]](), list[str]()
    for namespace, names in sorted(missing.items()):
        try:
            found += await claim_template_manifests(connection, namespace, names)
        except ForbiddenError as error:
            notices.append(not_read(namespace, str(error)))
    return found, notices


def not_read(namespace: str, reason: str) -> str:
    """Return the notice about templates that may not be read."""
    return f"ResourceClaimTemplates of namespace {namespace} are not read: {reason}"
