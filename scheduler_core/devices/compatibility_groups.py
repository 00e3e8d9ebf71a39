"""Compatibility groups of devices that consume counters of one set (gate DRADeviceCompatibilityGroups).

Devices of a set can be allocated at the same time if one group is common to all of them, or if none has a group.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/experimental/compatibility_groups.go``.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_core.devices.records import DeviceRecord

Groups = frozenset[str]
"""Groups that all allocated devices of a set have in common; None instead if none of them has a group."""

_Change = tuple[str, bool, Groups | None]
"""Set, whether it had a device before, and its common groups before."""


class CompatibilityGroups:
    """Groups in common of the allocated devices of each counter set of a pool; changes are undone in reverse order.

    Args:
        allocated: Devices in use before the search. They may contradict each other if the driver changed them since:
            the common groups are empty then, or stay those of the first device.
    """

    __slots__ = ("_changes", "_common")

    def __init__(self, allocated: Iterable[DeviceRecord]) -> None:
        self._common: dict[str, Groups | None] = {}
        self._changes: list[list[_Change]] = []
        for record in allocated:
            for counter_set, groups in record.compatibility_groups:
                self._add(counter_set, groups)

    def incompatible(self, record: DeviceRecord) -> list[tuple[str, Groups | None]]:
        """Return the sets that do not admit a device, with the groups that their devices have in common."""
        return [
            (counter_set, self._common[counter_set])
            for counter_set, groups in record.compatibility_groups
            if not self._admits(counter_set, groups)
        ]

    def take(self, record: DeviceRecord) -> bool:
        """Take a device; return False, and take nothing, if a set does not admit it."""
        changes: list[_Change] = []
        for counter_set, groups in record.compatibility_groups:
            if not self._admits(counter_set, groups):
                self._undo(changes)
                return False
            changes.append((counter_set, counter_set in self._common, self._common.get(counter_set)))
            self._add(counter_set, groups)
        self._changes.append(changes)
        return True

    def give_back(self) -> None:
        """Undo the last :meth:`take` that returned True."""
        self._undo(self._changes.pop())

    def _admits(self, counter_set: str, groups: Groups) -> bool:
        if counter_set not in self._common:
            return True
        common = self._common[counter_set]
        return not groups if common is None else bool(common & groups)

    def _add(self, counter_set: str, groups: Groups) -> None:
        if counter_set not in self._common:
            self._common[counter_set] = groups or None
            return
        common = self._common[counter_set]
        if common is not None and groups:
            self._common[counter_set] = common & groups

    def _undo(self, changes: list[_Change]) -> None:
        for counter_set, had_device, common in reversed(changes):
            if had_device:
                self._common[counter_set] = common
            else:
                del self._common[counter_set]
