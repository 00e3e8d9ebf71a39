"""The state of a scheduler as plain values that tests compare: everything that a later decision or metric may read.

Left out are caches of pure functions, the change log, counters that only cause readers to recompute, and readings of
the clock in a record, which a replay drops if it does not need them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct

from scheduler_core.change_log import ChangeLog
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.gangs.held_room import HeldRooms
from scheduler_core.model.pod_requests import CPU, MEMORY
from scheduler_core.placement.reservations import Reservation
from scheduler_core.queueing.group_trees import GangTree, GroupForest
from scheduler_core.recording.recorded_ports import RecordedWriter
from scheduler_core.recording.recorder import Recorder
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.columns_state import Queries, by_name

_PLAIN = frozenset((str, int, float, bytes, bool, type(None)))
_NOT_STATE = (NodeColumns, ChangeLog, FrameworkInstance, Plugin, Recorder, RecordedWriter)
_OWN = ("scheduler_core.", "bayplan.")
_COUNTERS = frozenset(("_version", "_position", "dry_runs"))
"""Attributes by which a reader finds out whether it must recompute."""
_COMPUTED: Mapping[type, frozenset[str]] = {
    Reservation: frozenset(("rows", "_index", "_free", "_slots")),
    GangTree: frozenset(("_changed", "_settled", "_states", "_to_review")),
    GroupForest: frozenset(("_chains",)),
    HeldRooms: frozenset(("_before", "_rows", "_ordered", "_numbers", "_resized", "_strangers")),
}
"""Attributes that are computed on the first read after a change, by type."""


def scheduler_state(scheduler: Scheduler) -> dict[str, Any]:
    """Return the state of a scheduler between two cycles."""
    context = scheduler.context
    nodes, services = context.cache.columns, context.services
    context.metrics.settle()
    walk = _Walk()
    return {
        "columns": _columns(nodes),
        "cache": [(each.info.uid, each.info.node_name, each.state.name) for each in context.cache.placed_pods()],
        "claims": [(claim.key, claim.metadata.resource_version) for claim in nodes.devices.claims],
        "in flight": walk.plain(nodes.devices._in_flight),
        "queue": walk.plain(context.queue),
        "gangs": [walk.plain(gang) for gang in context.queue.gangs],
        "nominations": walk.plain(context.queue.nominator),
        "reservations": walk.plain(scheduler.reservations),
        "waiting": walk.plain(context.waiting),
        "preemptions": walk.plain(services.preemptions),
        "metrics": walk.plain(context.metrics),
        "recorders": len(context.recording.recorders._spare),
        "next search": context.node_order.next_start,
        "random numbers": random.getstate(),
        "suspension": walk.plain(context.suspension),
        "profiles": [_profile(instance) for instance in context.profiles],
    }


def _columns(nodes: NodeColumns) -> dict[str, Any]:
    """Return the values of each node, without unused rows and without counts of pods that are computed on demand."""
    keys = (CPU, MEMORY, *(key for key in nodes.resources.keys if key))
    claims = tuple(claim.key for claim in nodes.storage.claims)
    found = by_name(nodes, Queries(keys, (), (), claims, (), (), (0, 100)))
    del found["queries"], found["terms"]
    found["nodes"] = [(name, row) for row, name in enumerate(nodes.names) if name is not None]
    found["order of pods"] = [list(pods) for pods in nodes.pods if pods]
    found["version"] = nodes.real_version
    return found


def _profile(instance: FrameworkInstance) -> dict[str, Any]:
    """Return the counts of a profile, what it reuses, and the counters and plain tables of its plugins."""
    classes = instance.pod_classes
    found: dict[str, Any] = {
        "profile": (instance.name, instance.revision, instance.in_flight),
        "reuse": None if classes is None else (list(classes._classes), classes.untimed, [*map(list, classes._seen)]),
    }
    for name, plugin in instance.plugins.items():
        found[name] = {
            key: value
            for key, value in vars(plugin).items()
            if type(value) in _PLAIN - {type(None)} or (isinstance(value, dict | set) and _is_plain(value))
        }
        found[name] = {key: dict(value) if isinstance(value, dict) else value for key, value in found[name].items()}
    return found


def _is_plain(table: dict[Any, Any] | set[Any]) -> bool:
    values = [*table, *table.values()] if isinstance(table, dict) else list(table)
    return all(type(each) in _PLAIN for each in values)


class _Walk:
    """Conversion of objects of the scheduler to plain values, in the order of their attributes; each object once."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def plain(self, value: Any) -> Any:
        """Convert a value; an object that was converted before is represented by its number."""
        kind = type(value)
        if kind in _PLAIN or isinstance(value, Enum):
            return value
        if kind is PodInfo:
            return value.uid, value.row, value.priority
        if isinstance(value, _NOT_STATE) or callable(value):
            return None
        if kind is np.ndarray:
            return value.tolist()
        if kind is tuple or kind is list or kind is deque:
            return self._each(value)
        meta = getattr(value, "metadata", None)
        if meta is not None and hasattr(meta, "uid"):
            return kind.__name__, meta.namespace, meta.name, meta.uid
        if id(value) in self._numbers:
            return self._numbers[id(value)]
        self._numbers[id(value)] = len(self._numbers)
        if isinstance(value, Mapping):
            return [(self.plain(key), self.plain(each)) for key, each in value.items()]
        if isinstance(value, AbstractSet):
            return sorted(map(repr, value))
        if not kind.__module__.startswith(_OWN):
            return kind.__name__
        names = _attributes(value, kind)
        return list(zip(names, self._each(getattr(value, name, None) for name in names), strict=True))

    def _each(self, values: Iterable[Any]) -> list[Any]:
        """Convert values. Most of them are plain, and a call for each takes most of the time of a test."""
        return [each if type(each) in _PLAIN else self.plain(each) for each in values]


def _attributes(value: object, kind: type) -> tuple[str, ...]:
    names = _declared_attributes(kind)
    if issubclass(kind, Struct) or not hasattr(value, "__dict__"):
        return names
    left_out = _left_out(kind)
    return (*(name for name in vars(value) if name not in left_out), *names)


@cache
def _declared_attributes(kind: type) -> tuple[str, ...]:
    """Return the fields of a struct, or the slots of another class."""
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    left_out = _left_out(kind)
    return tuple(name for each in kind.__mro__ for name in _slots(each) if name not in left_out)


def _left_out(kind: type) -> frozenset[str]:
    return _COUNTERS | _COMPUTED.get(kind, frozenset())


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
