"""Versions of ``resource.k8s.io`` that the API server serves, and the one that is read and written.

The fields that the structs of ``v1`` name have the same form in ``v1beta2``, the only version of Kubernetes 1.33.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.kube.http.api_discovery import served_resources
from bayplan.kube.http.connection import ApiConnection
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

GROUP = "resource.k8s.io"

VERSIONS = ("v1", "v1beta2")
"""In order of preference."""

NOT_SERVED = "the API server serves neither resource.k8s.io/v1 nor resource.k8s.io/v1beta2"

CLAIMS = "resourceclaims"

REQUIRED: Mapping[str, type[Any]] = {
    "deviceclasses": DeviceClass,
    "resourceslices": ResourceSlice,
    CLAIMS: ResourceClaim,
}
"""Struct of each collection that must be listed before claims are allocated."""

OPTIONAL: Mapping[str, type[Any]] = {"devicetaintrules": DeviceTaintRule}
"""Struct of each collection that older servers lack."""


class DeviceApi:
    """The version that is used.

    Attributes:
        path: Its path, such as ``/apis/resource.k8s.io/v1``; it changes only before anything is read.
    """

    def __init__(self) -> None:
        self.path = _path(VERSIONS[0])
        self._is_found = False

    async def paths(self, connection: ApiConnection) -> dict[str, str]:
        """Look up which collections are served.

        The required ones are all of one version, the newest that has them. An optional one may be of an older version:
        Kubernetes 1.36 has DeviceTaintRules in v1beta2 only.

        Returns:
            Path by resource; empty if no version has the required ones.

        Raises:
            ClusterWriteError: A request failed, or the response cannot be decoded.
        """
        found: dict[str, str] = {}
        for path in map(_path, VERSIONS):
            served = await served_resources(connection, path)
            if not found and served >= REQUIRED.keys() and (path == self.path or not self._is_found):
                self.path, self._is_found = path, True
                found = {name: f"{path}/{name}" for name in REQUIRED}
            if found:
                found |= {name: f"{path}/{name}" for name in served & OPTIONAL.keys() - found.keys()}
                if found.keys() >= OPTIONAL.keys():
                    break
        return found


def _path(version: str) -> str:
    return f"/apis/{GROUP}/{version}"
