"""Columns as plain values: two pictures are equal if no reader can see a difference.

:func:`columns_state` walks everything that the columns store, so that a new index is compared without a change here.
:func:`by_name` is what the columns say of each node, for columns whose rows and numbers differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import numpy as np
from msgspec import Struct

from scheduler_core.change_log import ChangeLog
from scheduler_core.model.pod_volumes import CsiVolume, DiskIdentity
from scheduler_core.snapshot.interning import CountingInterner, ResourceNames
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import HostPort, PodInfo

_COUNTERS = frozenset(("version", "terms_version", "idle_checks", "_version", "_namespaces_version", "_made", "_array"))
"""Attributes that only cause readers to recompute, or that are computed from others."""
_BY_RESOURCE = ("allocatable", "requested")


def columns_state(nodes: NodeColumns) -> dict[str, Any]:
    """Return all that columns store."""
    found: dict[str, Any] = _plain(nodes)
    for name in _BY_RESOURCE:
        found.pop(f"_{name}")
        amounts = getattr(nodes, name).tolist()
        found[name] = {key: amounts[column] for column, key in enumerate(nodes.resources.keys) if key}
    # The row of a removed node keeps the hash of its name.
    found.pop("_name_hashes")
    found["name_hashes"] = np.where(nodes.alive, nodes.name_hashes, 0).tolist()
    found["order of pods"] = [list(pods) for pods in nodes.pods]
    return found


def _plain(value: Any, around: tuple[int, ...] = ()) -> Any:
    """Return a value without its objects; ``around`` are the objects that contain it."""
    if value is None or isinstance(value, str | int | float | bytes | frozenset | Struct | Enum | type):
        return value
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, PodInfo):
        return value.uid, value.row
    if isinstance(value, ChangeLog) or callable(value):
        return None
    if isinstance(value, CountingInterner):
        return {key: (number, value._counts[number]) for key, number in value._ids.items()}
    if isinstance(value, ResourceNames):
        return dict(value._ids), dict(value._offers)
    if isinstance(value, dict):
        return {key: _plain(each, around) for key, each in value.items()}
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, list | tuple):
        return [_plain(each, around) for each in value]
    if id(value) in around:
        return None
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names = [*getattr(value, "__dict__", ()), *slots]
    return {name: _plain(getattr(value, name), (*around, id(value))) for name in names if name not in _COUNTERS}


class Queries(Struct, frozen=True):
    """What :func:`by_name` asks besides amounts."""

    resources: tuple[str, ...]
    labels: tuple[str, ...]
    ports: tuple[HostPort, ...]
    claims: tuple[str, ...]
    disks: tuple[DiskIdentity, ...]
    volumes: tuple[CsiVolume, ...]
    priorities: tuple[int, ...]


def by_name(nodes: NodeColumns, questions: Queries) -> dict[str, Any]:
    """Return what columns say of each node, and of the cluster."""
    index, use = nodes.pod_index, nodes.storage.use

    def named(rows: Iterable[int]) -> list[str]:
        return sorted(nodes.node_name(int(row)) for row in set(rows))

    def counted(counts: Any) -> dict[str, int]:
        return {nodes.node_name(int(row)): int(counts[row]) for row in np.flatnonzero(counts)}

    found: dict[str, Any] = {
        "ports": {port: named(nodes.host_ports.conflicting_rows((port,)).tolist()) for port in questions.ports},
        "claims": {key: (use.is_claim_mounted(key), use.volume_of_claim(key)) for key in questions.claims},
        "disks": {
            (each, read_only): named(use.disk_rows(each, read_only=read_only))
            for each in questions.disks
            for read_only in (True, False)
        },
        "volumes": {each: named(use.rows_with(each)) for each in questions.volumes},
        "volume counts": {each[0]: counted(use.counts(each[0], nodes.size)) for each in questions.volumes},
        "terms": {key: (counted(each.holders), each.sum) for key, each in index._terms.items()},
        "queries": {query: (counted(each.total), counted(each.ending)) for query, each in index._queries.items()},
        "images": {name: named(each.rows) for name, each in nodes.images._states.items()},
    }
    for row in np.flatnonzero(nodes.alive).tolist():
        one = np.array([row], dtype=np.intp)
        columns = {name: nodes.resources.find(name) for name in questions.resources}
        found[nodes.node_name(row)] = {
            "allocatable": {name: 0 if at is None else nodes.allocatable.item(at, row) for name, at in columns.items()},
            "requested": {name: nodes.requested_amount(name, row) for name in questions.resources},
            "nonzero": nodes.nonzero_requested[:, row].tolist(),
            "pods": (int(nodes.pod_count[row]), int(nodes.allowed_pods[row]), sorted(nodes.pods[row])),
            "node": (nodes.nodes[row], bool(nodes.unschedulable[row]), int(nodes.name_hashes[row])),
            "taints": nodes.taint_sets.keys[int(nodes.taint_set_ids[row])],
            "labels": {key: _label(nodes, key, row) for key in questions.labels},
            "below": [bool(nodes.priorities.below(each, one)[0]) for each in questions.priorities],
        }
    return found


def _label(nodes: NodeColumns, key: str, row: int) -> str | None:
    column = nodes.label_column(key)
    number = int(column.ids[row])
    return None if number < 0 else column.values.keys[number]
