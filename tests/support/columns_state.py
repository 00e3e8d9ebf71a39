"""Node columns as plain values that tests compare.

:func:`columns_state` walks all attributes of the columns, so that it includes new indexes without a change here.
:func:`by_name` returns the values by node name, for columns whose rows and interned numbers differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import numpy as np
from msgspec import Struct

from scheduler_core.change_log import ChangeLog
from scheduler_core.model.pod_volumes import CsiVolume, DiskIdentity
from scheduler_core.snapshot.indexes.pod_index import TermCounts
from scheduler_core.snapshot.interning import CountingInterner, ResourceNames
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import HostPort, PodInfo

_COUNTERS = frozenset(
    (
        "version",
        "dry_run_changes",
        "terms_version",
        "idle_checks",
        "_version",
        "_namespaces_version",
        "_made",
        "_array",
        "_left",
        "_found",
    )
)
"""Attributes that only cause readers to recompute, or that are derived from other attributes."""
_BY_RESOURCE = ("allocatable", "requested")


def columns_state(nodes: NodeColumns) -> dict[str, Any]:
    """Return all state of the columns."""
    nodes.storage.use.counts("", 0)  # applies what was added and removed
    found: dict[str, Any] = _plain(nodes)
    for name in _BY_RESOURCE:
        found.pop(f"_{name}")
        amounts = getattr(nodes, name).tolist()
        found[name] = {key: amounts[column] for column, key in enumerate(nodes.resources.keys) if key}
    # The row of a removed node still has the hash of the name.
    found.pop("_name_hashes")
    found["name_hashes"] = np.where(nodes.alive, nodes.name_hashes, 0).tolist()
    found["order of pods"] = [list(pods) for pods in nodes.pods]
    return found


def _plain(value: Any, parents: tuple[int, ...] = ()) -> Any:
    """Convert a value to plain values; ``parents`` are the IDs of the objects that contain it."""
    if value is None or isinstance(value, str | int | float | bytes | frozenset | Struct | Enum | type):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, PodInfo):
        return value.uid, value.row
    if isinstance(value, ChangeLog) or callable(value):
        return None
    if isinstance(value, TermCounts):
        # A column that many rows needed remains when few of them are left.
        return value.sum, value.holders.tolist()
    if isinstance(value, CountingInterner):
        return {key: (number, value._counts[number]) for key, number in value._ids.items()}
    if isinstance(value, ResourceNames):
        return dict(value._ids), dict(value._offers)
    if isinstance(value, dict):
        return {key: _plain(each, parents) for key, each in value.items()}
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list | tuple):
        return [_plain(each, parents) for each in value]
    if id(value) in parents:
        return None
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*getattr(value, "__dict__", ()), *slots]
    return {name: _plain(getattr(value, name), (*parents, id(value))) for name in names if name not in _COUNTERS}


class Queries(Struct, frozen=True):
    """Keys that :func:`by_name` reads."""

    resources: tuple[str, ...]
    labels: tuple[str, ...]
    ports: tuple[HostPort, ...]
    claims: tuple[str, ...]
    disks: tuple[DiskIdentity, ...]
    volumes: tuple[CsiVolume, ...]
    priorities: tuple[int, ...]


def by_name(nodes: NodeColumns, queries: Queries) -> dict[str, Any]:
    """Return the values of each node and of the cluster."""
    index, use = nodes.pod_index, nodes.storage.use

    def named(rows: Iterable[int]) -> list[str]:
        return sorted(nodes.node_name(int(row)) for row in set(rows))

    def counted(counts: Any) -> dict[str, int]:
        return {nodes.node_name(int(row)): int(counts[row]) for row in np.flatnonzero(counts)}

    found: dict[str, Any] = {
        "ports": {port: named(nodes.host_ports.conflicting_rows((port,)).tolist()) for port in queries.ports},
        "claims": {key: (use.is_claim_mounted(key), use.volume_of_claim(key)) for key in queries.claims},
        "disks": {
            (each, read_only): named(use.disk_rows(each, read_only=read_only))
            for each in queries.disks
            for read_only in (True, False)
        },
        "volumes": {each: named(use.rows_with(each)) for each in queries.volumes},
        "volume counts": {each[0]: counted(use.counts(each[0], nodes.size)) for each in queries.volumes},
        "terms": {key: (counted(each.holders), each.sum) for key, each in index.terms.items()},
        "queries": {query: (counted(each.total), counted(each.ending)) for query, each in index._queries.items()},
        "images": {name: named(each.rows) for name, each in nodes.images._states.items()},
    }
    for row in np.flatnonzero(nodes.alive).tolist():
        one = np.array([row], dtype=np.intp)
        columns = {name: nodes.resources.find(name) for name in queries.resources}
        found[nodes.node_name(row)] = {
            "allocatable": {name: 0 if at is None else nodes.allocatable.item(at, row) for name, at in columns.items()},
            "requested": {name: nodes.requested_amount(name, row) for name in queries.resources},
            "nonzero": nodes.nonzero_requested[:, row].tolist(),
            "pods": (int(nodes.pod_count[row]), int(nodes.allowed_pods[row]), sorted(nodes.pods[row])),
            "node": (nodes.nodes[row], bool(nodes.unschedulable[row]), int(nodes.name_hashes[row])),
            "taints": nodes.taint_sets.keys[int(nodes.taint_set_ids[row])],
            "labels": {key: _label(nodes, key, row) for key in queries.labels},
            "below": [bool(nodes.priorities.below(each, one)[0]) for each in queries.priorities],
        }
    return found


def _label(nodes: NodeColumns, key: str, row: int) -> str | None:
    column = nodes.label_column(key)
    number = int(column.ids[row])
    return None if number < 0 else column.values.keys[number]
