"""Shared counters of a pool: what allocated devices leave, what a search takes of it, and what may share a set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler_core.devices.allocated_devices import PoolUsage
from scheduler_core.devices.compatibility_groups import CompatibilityGroups, Groups
from scheduler_core.devices.pools import PoolView
from scheduler_core.devices.records import CounterKey, DeviceRecord


class CounterBalance:
    """Counters of a pool during a search, in nano-units.

    A counter that allocated devices exceed makes all devices of the pool that consume counters unavailable, also those
    that consume others; kube-scheduler compares all counters of the pool.
    """

    __slots__ = ("_available", "_groups", "_is_exceeded")

    def __init__(self, view: PoolView, usage: PoolUsage | None) -> None:
        available = dict(view.counters)
        if usage is not None:
            for record in _allocated(view, usage):
                for key, amount in record.counters.items():
                    if key in available:
                        available[key] -= amount
        self._available = available
        self._groups: CompatibilityGroups | None = None
        if view.has_compatibility_groups:
            self._groups = CompatibilityGroups(() if usage is None else _allocated(view, usage))
        self._is_exceeded = any(amount < 0 for amount in available.values())

    @property
    def available(self) -> Mapping[CounterKey, int]:
        """What is left of each counter; negative if allocated devices exceed it."""
        return self._available

    def take(self, record: DeviceRecord) -> bool:
        """Take the counters of a device; return False, and take none, if they do not suffice or are not for it."""
        available = self._available
        if self._is_exceeded or any(available.get(key, -1) < amount for key, amount in record.counters.items()):
            return False
        if self._groups is not None and not self._groups.take(record):
            return False
        for key, amount in record.counters.items():
            available[key] -= amount
        return True

    def lacking(self, record: DeviceRecord) -> list[tuple[CounterKey, int, int]]:
        """Return the counters that do not suffice for a device, with the needed and the available amount."""
        available = self._available
        exceeded = [(key, record.counters.get(key, 0), left) for key, left in available.items() if left < 0]
        short = [
            (key, amount, available.get(key, 0))
            for key, amount in record.counters.items()
            if available.get(key, -1) < amount and available.get(key, 0) >= 0
        ]
        return short + (exceeded if record.counter_sets else [])

    def incompatible(self, record: DeviceRecord) -> list[tuple[str, Groups | None]]:
        """Return the counter sets whose devices are not compatible with a device, with their groups in common."""
        return [] if self._groups is None else self._groups.incompatible(record)

    def give_back(self, record: DeviceRecord) -> None:
        """Undo the last :meth:`take` that returned True, which was of the same device."""
        if self._groups is not None:
            self._groups.give_back()
        for key, amount in record.counters.items():
            self._available[key] += amount


def _allocated(view: PoolView, usage: PoolUsage) -> Iterator[DeviceRecord]:
    """Yield the devices in use that consume counters."""
    for name, record in zip(view.names.names, view.records, strict=True):
        if record.counters and usage.uses(name):
            yield record
    for other in view.others:
        for name, record in zip(other.names, other.records, strict=True):
            if record.counters and usage.uses(name):
                yield record
