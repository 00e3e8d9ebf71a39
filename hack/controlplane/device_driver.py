"""A driver for Dynamic Resource Allocation that has no hardware: it publishes devices and reports their conditions."""

from __future__ import annotations

from hack.controlplane.api_client import ApiClient, Manifest, status_of

API = "resource.k8s.io/v1"
Device = tuple[str, str, str]
"""Driver, pool and name of a device."""


class DeviceDriver:
    def __init__(self, api: ApiClient, name: str, version: str = API) -> None:
        self.name = name
        self._version = version
        self._api = api
        self._published: dict[str, Manifest] = {}

    def publish(self, node: str, *devices: Manifest) -> None:
        """Create or replace the slice of a node."""
        if node in self._published:
            self._api.patch(self._published[node], {"spec": {"devices": list(devices)}})
            return
        published = slice_of(self.name, node, *devices) | {"apiVersion": self._version}
        self._api.create(published)
        self._published[node] = {key: published[key] for key in ("apiVersion", "kind", "metadata")}

    def report(self, claim: Manifest, **conditions: str) -> None:
        """Report conditions of all devices of an allocated claim, as status by type."""
        reported = [
            {
                "type": kind,
                "status": status,
                "reason": "Reported",
                "message": f"{kind} is {status}",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            for kind, status in conditions.items()
        ]
        devices = [
            {"driver": driver, "pool": pool, "device": device, "conditions": reported}
            for driver, pool, device in devices_of(claim)
        ]
        reported_on = {"apiVersion": self._version, "kind": "ResourceClaim", "metadata": claim["metadata"]}
        self._api.patch(reported_on, {"status": {"devices": devices}}, "status")

    def stop(self) -> None:
        for published in self._published.values():
            self._api.delete(published)


def slice_of(driver: str, node: str, *devices: Manifest) -> Manifest:
    """Return a ResourceSlice with all devices of a driver on a node; the node is the pool."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "nodeName": node, "devices": list(devices)}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{node}-slice"}, "spec": spec}


def devices_of(claim: Manifest) -> list[Device]:
    """Return the devices of a claim's allocation; empty without an allocation."""
    results = status_of(claim).get("allocation", {}).get("devices", {}).get("results", [])
    return [(each["driver"], each["pool"], each["device"]) for each in results]
