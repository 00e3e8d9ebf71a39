"""Shared counters of a pool: what allocated devices leave, and what a search takes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler_core.devices.allocated_devices import PoolUsage
from scheduler_core.devices.pools import PoolView
from scheduler_core.devices.records import CounterKey, DeviceRecord


class CounterBalance:
    """Counters of a pool during a search, in nano-units.

    A counter that allocated devices exceed makes all devices of the pool that consume counters unavailable, also those
    that consume others; kube-scheduler compares all counters of the pool.

    Args:
        view: The pool.
        usage: Its devices in use, on all nodes.
    """

    __slots__ = ("_available", "_is_exceeded")

    def __init__(self, view: PoolView, usage: PoolUsage | None) -> None:
        available = dict(view.counters)
        if usage is not None:
            for consumed in _consumed(view, usage):
                for key, amount in consumed.items():
                    if key in available:
                        available[key] -= amount
        self._available = available
        self._is_exceeded = any(amount < 0 for amount in available.values())

    @property
    def available(self) -> Mapping[CounterKey, int]:
        """What is left of each counter; negative if allocated devices exceed it."""
        return self._available

    def take(self, record: DeviceRecord) -> bool:
        """Take the counters of a device; return False, and take none, if they do not suffice."""
        available = self._available
        if self._is_exceeded or any(available.get(key, -1) < amount for key, amount in record.counters.items()):
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

    def give_back(self, record: DeviceRecord) -> None:
        """Undo :meth:`take`."""
        for key, amount in record.counters.items():
            self._available[key] += amount


def _consumed(view: PoolView, usage: PoolUsage) -> Iterator[Mapping[CounterKey, int]]:
    for name, record in zip(view.names.names, view.records, strict=True):
        if record.counters and usage.uses(name):
            yield record.counters
    for other in view.others:
        for name, record in zip(other.names, other.records, strict=True):
            if record.counters and usage.uses(name):
                yield record.counters
