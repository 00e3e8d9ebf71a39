"""Counts the devices of a node that match a device class, and those of them in use, to score extended resources.

Every device of every slice that targets the node counts: generations, completeness of pools, counters and taints are
ignored, and so is whether a device can be shared. If a selector fails for a device, no device of the node counts.

Follows kube-scheduler v1.37.1, ``plugins/noderesources/resource_allocation.go`` (``calculateDRAResourceTotals``), which
in addition keeps positive verdicts for devices that a driver changed afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import compress
from weakref import WeakKeyDictionary

from scheduler_core.devices.allocator import ClusterDevices
from scheduler_core.devices.pools import PooledSlice
from scheduler_core.devices.selector_cache import Expressions
from scheduler_core.errors import AllocationError
from scheduler_core.model.devices import DeviceClass

_MAX_CLASSES = 16
_DEVICES_PER_STEP = 64
_NONE = (0, 0)

_Matches = tuple[bool | None, ...]
"""Whether each device of a slice matches; None if a selector failed."""


def class_expressions(device_class: DeviceClass) -> Expressions:
    """Return the selectors of a class."""
    return tuple(each.cel.expression for each in device_class.spec.selectors if each.cel is not None)


class ClassCounts:
    """Counts of devices by class and node; verdicts are stored per slice."""

    def __init__(self, devices: ClusterDevices, max_classes: int = _MAX_CLASSES) -> None:
        self.devices = devices
        self._max_classes = max_classes
        self._matches: OrderedDict[tuple[bool, Expressions], WeakKeyDictionary[PooledSlice, _Matches]] = OrderedDict()

    def count(self, device_class: DeviceClass, name: str, labels: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of devices of a node that match a class, and how many of them are in use."""
        expressions = class_expressions(device_class)
        total = used = 0
        try:
            for pooled, targeted in self.devices.inventory.targeting(name, labels):
                self.devices.steps.upkeep(1 + len(pooled.names) // _DEVICES_PER_STEP)
                matches = self._matches_of(expressions, pooled)
                names = pooled.names
                if targeted is not None:
                    matches = tuple(compress(matches, targeted))
                    names = tuple(compress(names, targeted))
                if None in matches:
                    return _NONE
                total += sum(map(bool, matches))
                usage = self.devices.allocated.usage(pooled.pool_key)
                if usage is not None:
                    used += sum(usage.uses(device) for device in compress(names, matches))
        except AllocationError:
            return _NONE
        return total, used

    def _matches_of(self, expressions: Expressions, pooled: PooledSlice) -> _Matches:
        # Dry runs must not change the number of steps of live attempts.
        key = (self.devices.steps.is_dry, expressions)
        by_slice = self._matches.get(key)
        if by_slice is None:
            by_slice = self._matches[key] = WeakKeyDictionary()
            if len(self._matches) > self._max_classes:
                self._matches.popitem(last=False)
        else:
            self._matches.move_to_end(key)
        found = by_slice.get(pooled)
        if found is None:
            selectors = self.devices.knowledge_in_use.selectors
            verdicts = [selectors.verdict(expressions, each.facts.without_sharing()) for each in pooled.own_records]
            found = by_slice[pooled] = tuple(None if each.is_error else each.matches for each in verdicts)
        return found
