"""A test driver's devices, device classes and claims on a real API server.

The driver's name contains the token of the test, so that tests on one control plane have separate devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hack.controlplane.api_client import ApiClient, Manifest, address, collection, status_of
from hack.controlplane.device_driver import API, Device, DeviceDriver, devices_of
from hack.controlplane.launcher import ControlPlane
from tests.support.devices import cel
from tests.support.live_gangs import LABEL, LiveGangs
from tests.support.operator_process import OperatorProcess


class LiveDevices(LiveGangs):
    """:class:`LiveGangs` with a driver, a DeviceClass for its devices, and claims.

    Attributes:
        device_class: Name of the class that selects the driver's devices.
    """

    def __init__(self, api: ApiClient, operator: OperatorProcess, namespace: str, version: str = API) -> None:
        super().__init__(api, operator, namespace)
        self.version = version
        self.driver = DeviceDriver(api, f"{self.token}.example.com", version)
        self.device_class = self.cluster_object("DeviceClass", "any", version, spec={"selectors": self._of_driver()})

    def class_for(self, resource: str) -> None:
        """Create a class with an extended resource name."""
        spec = {"selectors": self._of_driver(), "extendedResourceName": resource}
        self.cluster_object("DeviceClass", "extended", self.version, spec=spec)

    def machine(self, short: str, *devices: Manifest) -> str:
        """Create a node with devices; return its name."""
        name = self.node(short)
        self.driver.publish(name, *devices)
        return name

    def exactly(self, *expressions: str, **fields: Any) -> Manifest:
        """Return a request for devices of the class."""
        return {"deviceClassName": self.device_class, "selectors": cel(*expressions), **fields}

    def devices_claim(self, name: str, *requests: Manifest) -> None:
        """Create a claim; the default request is one device of the class."""
        self.api.create(self._object("ResourceClaim", name) | {"spec": self._spec(requests)})

    def template(self, name: str, *requests: Manifest) -> None:
        """Create a ResourceClaimTemplate; the requests are those of :meth:`devices_claim`."""
        self.api.create(self._object("ResourceClaimTemplate", name) | {"spec": {"spec": self._spec(requests)}})

    def user(self, name: str, *, claim: str = "", template: str = "", group: str = "", **fields: Any) -> None:
        """Create a pod that uses a claim, or one of a template; ``group`` is its PodGroup."""
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
        spec = {"resourceClaims": [{"name": "device", **source}], **fields.pop("spec", {})}
        self.pod(name, labels={LABEL: group} if group else {}, spec=spec, **fields)

    def unborn(self, name: str, template: str) -> Manifest:
        """Return the manifest of a pod with a claim of a template."""
        claims = [{"name": "device", "resourceClaimTemplateName": template}]
        return {"apiVersion": "v1", **self.manifest(name, spec={"resourceClaims": claims})}

    def claims(self) -> list[Manifest]:
        """Return all claims of the namespace."""
        return self.api.items(collection(self._object("ResourceClaim", "")))

    def claim_named(self, name: str) -> Manifest:
        """Return a claim."""
        return self.api.get(address(self._object("ResourceClaim", name)))

    def claim_of(self, pod: str) -> Manifest:
        """Return the claim that was created from a pod's template."""
        (status,) = status_of(self.read(pod))["resourceClaimStatuses"]
        return self.claim_named(status["resourceClaimName"])

    def until_allocated(self, name: str) -> Manifest:
        """Wait until a claim has an allocation; return the claim."""
        self.until(lambda: devices_of(self.claim_named(name)), f"claim {name} is allocated")
        return self.claim_named(name)

    def allocated(self) -> list[Device]:
        """Return the devices of all allocations, sorted."""
        return sorted(device for claim in self.claims() for device in devices_of(claim))

    def clean_up(self) -> None:
        """Delete the objects of the test, the driver's slices, and all claims and templates."""
        super().clean_up()
        self.driver.stop()
        for kind in ("ResourceClaimTemplate", "ResourceClaim"):
            for item in self.api.items(collection(self._object(kind, ""))):
                found = self._object(kind, item["metadata"]["name"])
                self.api.remove_finalizers(found)
                self.api.delete(found)

    def _of_driver(self) -> list[Manifest]:
        return cel(f'device.driver == "{self.driver.name}"')

    def _spec(self, requests: Sequence[Manifest]) -> Manifest:
        return {"devices": {"requests": list(requests) or [{"name": "one", "exactly": self.exactly()}]}}

    def _object(self, kind: str, name: str) -> Manifest:
        return {"apiVersion": self.version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}}


@contextmanager
def live_devices(
    plane: ControlPlane, operator: OperatorProcess, namespace: str, version: str = API
) -> Iterator[LiveDevices]:
    """Create a world with devices; delete its objects at the end."""
    with ApiClient(plane) as api:
        world = LiveDevices(api, operator, namespace, version)
        yield world
        world.clean_up()
