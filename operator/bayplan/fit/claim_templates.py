"""ResourceClaimTemplates that pods of a search name; they are read when it begins, because nothing watches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bayplan.kube.http.api_request import ApiRequest, path_part
from bayplan.kube.http.connection import ApiConnection, Lane
from bayplan.kube.served_apis import DEVICE_GROUP, DEVICE_VERSIONS
from scheduler_core.errors import NotFoundError

KIND = "ResourceClaimTemplate"


def named_templates(pods: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of the templates that manifests of pods, or of PodTemplates, name."""
    found = set()
    for each in pods:
        spec = each.get("spec")
        claims = spec.get("resourceClaims") if isinstance(spec, Mapping) else None
        for claim in claims if isinstance(claims, list | tuple) else ():
            name = claim.get("resourceClaimTemplateName") if isinstance(claim, Mapping) else None
            if isinstance(name, str):
                found.add(name)
    return found


async def claim_template_manifests(
    connection: ApiConnection, namespace: str, names: Iterable[str]
) -> list[dict[str, Any]]:
    """Return templates of a namespace as manifests, without those that do not exist.

    Raises:
        ClusterWriteError: The API server refuses the request, or does not respond.
    """
    found = []
    for name in sorted(names):
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
