"""Service accounts of tests: their rights by RBAC, and their tokens."""

from __future__ import annotations

import time

from hack.controlplane.api_client import ApiClient, Manifest, status_of

_GRANT_SECONDS = 120.0
_POLL_SECONDS = 0.05
_RBAC = "rbac.authorization.k8s.io"


def path_rule(path: str) -> Manifest:
    """Return the rule that allows GET of a path of an HTTP server."""
    return {"nonResourceURLs": [path], "verbs": ["get"]}


def resource_rule(verb: str, resource: str, group: str = "") -> Manifest:
    """Return the rule that allows a verb on a resource; no API need serve it."""
    return {"apiGroups": [group], "resources": [resource], "verbs": [verb]}


def create_account(api: ApiClient, namespace: str, name: str, *rules: Manifest, is_namespaced: bool = False) -> None:
    """Create a service account, and wait until the API server applies the rules of its role.

    Bayplan would cache a rejection.

    Args:
        is_namespaced: Whether the role is a Role of the namespace, and not a ClusterRole.
    """
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    api.create({"kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
    if not rules:
        return
    kind = "Role" if is_namespaced else "ClusterRole"
    metadata = {"name": f"{namespace}-{name}", "namespace": namespace}
    role: Manifest = {"apiVersion": f"{_RBAC}/v1", "metadata": metadata}
    api.create({**role, "kind": kind, "rules": list(rules)})
    reference = {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]}
    api.create({**role, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]})
    user, deadline = f"system:serviceaccount:{namespace}:{name}", time.monotonic() + _GRANT_SECONDS
    attributes = [_attributes(rule, namespace if is_namespaced else "") for rule in rules]
    while not all(api.is_allowed(user, **each) for each in attributes):
        assert time.monotonic() < deadline, f"{name} has no rights"
        time.sleep(_POLL_SECONDS)


def _attributes(rule: Manifest, namespace: str) -> dict[str, Manifest]:
    verb = {"verb": rule["verbs"][0]}
    if "nonResourceURLs" in rule:
        return {"nonResourceAttributes": {**verb, "path": rule["nonResourceURLs"][0]}}
    (group,), (resource,) = rule["apiGroups"], rule["resources"]
    return {"resourceAttributes": {**verb, "group": group, "resource": resource, "namespace": namespace}}


def token_of(api: ApiClient, namespace: str, name: str, *audiences: str) -> str:
    """Return a token of a service account, by default for the API server."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": list(audiences)}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str(status_of(api.request("POST", path, request))["token"])
