"""Random devices and claims for the twins, and the API server's part for the claims of one twin."""

from __future__ import annotations

from random import Random

from bayplan.simulation.memory_claims import MemoryClaims
from msgspec.structs import replace

from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.devices import DeviceClass, ResourceSlice
from tests.support.devices import alternative, claim, device, device_class, exactly, first_available, slice_of

_MODELS = ("a100", "l4")
EXTENDED_RESOURCE = "example.com/gpu"
SHARED_CLAIMS = ("shared-0", "shared-1")
"""Names of claims that several pods use, in each namespace."""


def draw_slice(rng: Random, node_name: str, generation: int) -> ResourceSlice:
    """Draw the devices of a node; some must be prepared, which happens at once."""
    devices = []
    for number in range(rng.randrange(5)):
        fields = {"bindingConditions": ["ready"]} if rng.random() < 0.2 else {}
        devices.append(device(f"gpu-{number}", rng.choice(_MODELS), **fields))
    return slice_of(devices, node=node_name, generation=generation)


def draw_class(rng: Random) -> DeviceClass:
    """Draw the class that all claims name; it serves an extended resource at times."""
    made = device_class()
    if rng.random() < 0.5:
        return made
    return replace(made, spec=replace(made.spec, extended_resource_name=EXTENDED_RESOURCE))


def draw_device_claim(rng: Random, name: str, namespace: str) -> ResourceClaim:
    """Draw a claim for one device, two, or all of a node, or with alternatives."""
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
    made = claim(request, name=name)
    return replace(made, metadata=replace(made.metadata, namespace=namespace, uid=f"{namespace}/{name}"))


class TwinClaims:
    """Objects of Dynamic Resource Allocation as one twin has them."""

    def __init__(self) -> None:
        self.writer = _StoredClaims(lambda *_: None)
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._feed: DeviceFeed | None = None

    def serve(self, feed: DeviceFeed) -> None:
        """Deliver all changes to a scheduler from now on."""
        self._feed = feed
        self.writer.serve((), feed)

    def show(self, shown: ResourceClaim | DeviceClass | ResourceSlice) -> None:
        """Add or replace an object; a claim that exists stays."""
        assert self._feed is not None
        if isinstance(shown, ResourceClaim):
            self.writer.add(shown)
            return
        known: dict[str, ResourceSlice] | dict[str, DeviceClass]
        known = self._slices if isinstance(shown, ResourceSlice) else self._classes
        old = known.get(shown.metadata.name)
        known[shown.metadata.name] = shown  # type: ignore[assignment]  # of the kind of the dict
        if old is None:
            self._feed.added(shown)
        else:
            self._feed.updated(old, shown)

    def withdraw(self, node_name: str) -> None:
        """Remove the slice of a node."""
        for name in [name for name, each in self._slices.items() if each.spec.node_name == node_name]:
            assert self._feed is not None
            self._feed.deleted(self._slices.pop(name))

    def allocations(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Return pool and device of each allocated device by the claim."""
        return {
            each.key: tuple((one.pool, one.device) for one in each.status.allocation.devices.results)
            for each in self.writer.claims
            if each.status.allocation is not None
        }

    def delete_claim(self, key: str) -> None:
        """Delete a claim, if there is one."""
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
        """Delete a claim, if there is one."""
        gone = self._claims.pop(key, None)
        if gone is not None and self._feed is not None:
            self._feed.deleted(gone)
