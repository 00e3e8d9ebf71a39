"""Random devices and claims for the twin schedulers, and the API of resource claims of one scheduler."""

from __future__ import annotations

from random import Random

from bayplan.simulation.memory_cluster import MemoryClaims
from msgspec.structs import replace

from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from tests.support.devices import alternative, claim, device, device_class, exactly, first_available, slice_of

_MODELS = ("a100", "l4")
EXTENDED_RESOURCE = "example.com/gpu"
SHARED_CLAIMS = ("shared-0", "shared-1")
"""Names of claims that several pods use, in each namespace."""


def random_slice(rng: Random, node_name: str, generation: int) -> ResourceSlice:
    """Return the random devices of a node; some have a binding condition, which becomes true at once."""
    devices = []
    for number in range(rng.randrange(5)):
        fields = {"bindingConditions": ["ready"]} if rng.random() < 0.2 else {}
        devices.append(device(f"gpu-{number}", rng.choice(_MODELS), **fields))
    return slice_of(devices, node=node_name, generation=generation)


def random_class(rng: Random) -> DeviceClass:
    """Return the device class of all claims, with or without an extended resource."""
    plain = device_class()
    if rng.random() < 0.5:
        return plain
    return replace(plain, spec=replace(plain.spec, extended_resource_name=EXTENDED_RESOURCE))


def random_device_claim(rng: Random, name: str, namespace: str) -> ResourceClaim:
    """Return a random claim for one device, two devices, all devices of a node, or alternatives."""
    model = f'device.attributes["gpu.example.com"].model == "{rng.choice(_MODELS)}"'
    request = rng.choice(
        (
            exactly("r"),
            exactly("r", model),
            exactly("r", count=2),
            exactly("r", allocationMode="All"),
            first_available("r", alternative("first", model, count=2), alternative("second")),
        )
    )
    created = claim(request, name=name)
    return replace(created, metadata=replace(created.metadata, namespace=namespace, uid=f"{namespace}/{name}"))


class TwinClaims:
    """DeviceClasses, ResourceSlices and ResourceClaims of one twin."""

    def __init__(self) -> None:
        self.writer = _StoredClaims(lambda *_: None)
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._feed: DeviceFeed | None = None

    def serve(self, feed: DeviceFeed) -> None:
        """Deliver all changes to a scheduler from now on."""
        self._feed = feed
        self.writer.serve((), feed)

    def put(self, obj: ResourceClaim | DeviceClass | ResourceSlice) -> None:
        """Create or replace an object; an existing claim is not replaced."""
        assert self._feed is not None
        if isinstance(obj, ResourceClaim):
            self.writer.add(obj)
            return
        known: dict[str, ResourceSlice] | dict[str, DeviceClass]
        known = self._slices if isinstance(obj, ResourceSlice) else self._classes
        old = known.get(obj.metadata.name)
        known[obj.metadata.name] = obj  # type: ignore[assignment]  # both have the same type
        if old is None:
            self._feed.added(obj)
        else:
            self._feed.updated(old, obj)

    def delete_slice(self, node_name: str) -> None:
        """Remove the slice of a node."""
        for name in [name for name, each in self._slices.items() if each.spec.node_name == node_name]:
            assert self._feed is not None
            self._feed.deleted(self._slices.pop(name))

    def allocations(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Return pool and name of the allocated devices, by the key of the claim."""
        return {
            each.key: tuple((one.pool, one.device) for one in each.status.allocation.devices.results)
            for each in self.writer.claims
            if each.status.allocation is not None
        }

    def delete_claim(self, key: str) -> None:
        """Delete a claim, if it exists."""
        self.writer.remove(key)


class _StoredClaims(MemoryClaims):
    def add(self, claim: ResourceClaim) -> None:
        """Create a claim, unless it exists."""
        if claim.key in self._claims:
            return
        created = replace(claim, metadata=replace(claim.metadata, resource_version=str(next(self._versions))))
        self._claims[claim.key] = created
        assert self._feed is not None
        self._feed.added(created)

    def remove(self, key: str) -> None:
        """Delete a claim, if it exists."""
        deleted = self._claims.pop(key, None)
        if deleted is not None and self._feed is not None:
            self._feed.deleted(deleted)
