"""Objects of a control plane as etcd's keys.

They are deleted in etcd: by the API server, objects with finalizers and namespaces would stay without controllers.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

from hack.controlplane.probes import LOOPBACK

_FIRST, _END = "/registry/", "/registry0"
_DEFINITIONS = ("/registry/apiextensions.k8s.io/customresourcedefinitions/", "/registry/apiregistration.k8s.io/")
_MOST_OPERATIONS = 128
"""Operations that etcd accepts in a transaction by default."""
_SECONDS = 60.0


def stored_keys(port: int) -> frozenset[str]:
    """Return the keys of all objects in the etcd that serves clients on a port of loopback."""
    found = _call(port, "range", key=_encoded(_FIRST), range_end=_encoded(_END), keys_only=True)
    return frozenset(base64.b64decode(each["key"]).decode() for each in found.get("kvs", ()))


def delete_keys(port: int, keys: frozenset[str]) -> None:
    """Delete objects; watches receive the deletions."""
    ordered = sorted(keys)
    for start in range(0, len(ordered), _MOST_OPERATIONS):
        part = ordered[start : start + _MOST_OPERATIONS]
        _call(port, "txn", success=[{"requestDeleteRange": {"key": _encoded(key)}} for key in part])


def is_bayplan_definition(key: str) -> bool:
    """Return whether the object is one of Bayplan's CustomResourceDefinitions, or makes their version known."""
    return key.startswith(_DEFINITIONS) and key.endswith(".bayplan.dev")


def _encoded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _call(port: int, method: str, **body: Any) -> dict[str, Any]:
    """Call etcd's JSON gateway, which names bytes by their base64."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{LOOPBACK}:{port}/v3/kv/{method}", json.dumps(body).encode(), _SECONDS) as answer:
        decoded: dict[str, Any] = json.load(answer)
        return decoded
