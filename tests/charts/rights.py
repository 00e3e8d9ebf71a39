"""Single rights that RBAC objects grant, and those that the audit log shows as used, so that both can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

Manifest = Mapping[str, Any]
_CREATED, _FORBIDDEN = 201, 403
_SYNTHETIC = {("patch", "resourceclaims/status"): "resourceclaims/binding"}
"""Resources that no request names: the API server authorizes changes of an allocation for both."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource.

    Attributes:
        verb: Verb as in RBAC.
        group: API group; "" for the core group.
        resource: Resource with its subresource, such as ``pods/status``.
        namespace: Namespace of the right; "" for all.
        name: Name of the only object of the right; "" for all objects.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}.{self.group}{'/' + self.name if self.name else ''}{where}"

    def covers(self, used: Right) -> bool:
        """Return whether this right allows a request."""
        return (
            (self.verb, self.group, self.resource) == (used.verb, used.group, used.resource)
            and self.namespace in ("", used.namespace)
            and self.name in ("", used.name)
        )


def granted(objects: Iterable[Manifest], account: str, namespace: str) -> list[Right]:
    """Return the rights that roles and bindings grant to a service account.

    Args:
        objects: Manifests, including roles and bindings.
    """
    by_key = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    found: list[Right] = []
    for (kind, _), binding in by_key.items():
        if kind in ("ClusterRoleBinding", "RoleBinding") and subject in binding["subjects"]:
            role = by_key[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
            where = binding["metadata"].get("namespace", "")
            found += [right for rule in role["rules"] for right in _of_rule(rule, where)]
    return found


def used(events: Iterable[Manifest], user: str) -> set[Right]:
    """Return the rights that a user has used.

    Args:
        events: Events of the audit log.
        user: User name, such as ``system:serviceaccount:bayplan:bayplan``.
    """
    requested = list(_requested(events, user))
    found = {right for right, code in requested if code != _FORBIDDEN}
    # Server-side apply of a new object is a patch that needs the right to create, too.
    found |= {replace(right, verb="create") for right, code in requested if (right.verb, code) == ("patch", _CREATED)}
    synthetic = ((right, _SYNTHETIC.get((right.verb, right.resource))) for right in found)
    return found | {replace(right, resource=resource) for right, resource in synthetic if resource is not None}


def refused(events: Iterable[Manifest], user: str) -> set[Right]:
    """Return the rights that a user lacked.

    Args:
        events: Events of the audit log.
        user: User name, such as ``system:serviceaccount:bayplan:bayplan``.
    """
    return {right for right, code in _requested(events, user) if code == _FORBIDDEN}


def _of_rule(rule: Manifest, namespace: str) -> Iterator[Right]:
    if "nonResourceURLs" in rule:
        return  # paths that the operator serves itself, which the audit log does not record
    names = rule.get("resourceNames", [""])
    for verb, group, resource, name in product(rule["verbs"], rule["apiGroups"], rule["resources"], names):
        yield Right(verb, group, resource, namespace, name)


def _requested(events: Iterable[Manifest], user: str) -> Iterator[tuple[Right, int]]:
    for event in events:
        reference = event.get("objectRef")
        if event["user"]["username"] != user or reference is None:
            continue
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource", ""))))
        right = Right(
            event["verb"],
            reference.get("apiGroup", ""),
            resource,
            reference.get("namespace", ""),
            reference.get("name", ""),
        )
        yield right, int(event.get("responseStatus", {}).get("code", 0))
