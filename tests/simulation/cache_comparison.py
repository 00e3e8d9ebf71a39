"""Compares a cache that was updated incrementally with one that was filled at once.

Node rows differ between the two, so everything is compared by the node's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.framework.queued_pod import Place
from scheduler_core.snapshot.node_columns import NodeColumns

Facts = dict[str, Any]


def cache_differences(older: CycleContext, fresh: CycleContext) -> Iterator[str]:
    """Yield each fact that differs."""
    yield from _differences("", _cluster_facts(older, fresh), _cluster_facts(fresh, fresh))
    mine, theirs = older.cache.columns, fresh.cache.columns
    names = sorted(name for name in mine.names if name is not None)
    if names != sorted(name for name in theirs.names if name is not None):
        yield f"the cache has nodes {names}"
        return
    for name in names:
        yield from _differences(f"node {name}: ", _node_facts(mine, name), _node_facts(theirs, name))
        yield from _differences(f"node {name}: ", _counted(mine, name, mine), _counted(theirs, name, mine))


def _differences(where: str, mine: Facts, theirs: Facts) -> Iterator[str]:
    for key in sorted({*mine, *theirs}, key=str):
        if mine.get(key) != theirs.get(key):
            yield f"{where}{key} is {mine.get(key)} in the cache and {theirs.get(key)} on the server"


def _cluster_facts(context: CycleContext, fresh: CycleContext) -> Facts:
    cache, nominator, storage = context.cache, context.queue.nominator, context.cache.columns.storage
    facts: Facts = {
        "pods that are placed": sorted(placed.info.uid for placed in cache.placed_pods()),
        "pods without their node": sorted((node, uid) for node, pods in cache._without_node.items() for uid in pods),
        # A scheduler that starts ignores the nomination of a gated pod.
        "nominations": sorted(
            (node, info.uid)
            for node in nominator.nodes()
            for info in nominator.nominated_pods(node)
            if not _is_gated(fresh, info.uid)
        ),
        "assumed volumes": sorted(storage.volumes._assumed),
        "assumed claims": sorted(storage.claims._assumed),
    }
    facts |= _device_facts(cache.columns, fresh.cache.columns)
    for each in fresh.cache.columns.storage.volumes:
        name = each.metadata.name
        facts[f"volume {name}"] = storage.volumes.get(name)
    for claim in fresh.cache.columns.storage.claims:
        key = claim.key
        facts[f"claim {key}"] = storage.claims.get(key)
        facts[f"whether claim {key} is mounted"] = storage.use.is_claim_mounted(key)
    return facts


def _device_facts(columns: NodeColumns, fresh: NodeColumns) -> Facts:
    """Return the claims, and which devices they use."""
    devices = columns.devices
    facts: Facts = {
        "resource claims": sorted(claim.metadata.uid for claim in devices.claims),
        "allocations in flight": sorted(devices._in_flight),
        "device classes": sorted(devices.classes),
    }
    for claim in fresh.devices.claims:
        facts[f"resource claim {claim.key}"] = devices.claims.get(claim.key)
    for pool, usage in devices.hardware.allocated._pools.items():
        shares = {name: (each.count, dict(each.consumed)) for name, each in usage.shares.items()}
        facts[f"devices in use of pool {pool}"] = (dict(usage.dedicated), shares)
    return facts


def _is_gated(context: CycleContext, uid: str) -> bool:
    queued = context.queue.find(uid)
    return queued is not None and queued.place is Place.GATED


def _node_facts(columns: NodeColumns, name: str) -> Facts:
    row = columns.row_of(name)
    node = columns.nodes[row]
    priorities = {
        priority: int(column.rows[row]) for priority, column in columns.priorities._columns.items() if column.rows[row]
    }
    ports = sorted(
        (protocol, port, address, holders[row])
        for (protocol, port), by_address in columns.host_ports._use.items()
        for address, holders in by_address.items()
        if row in holders
    )
    terms = sorted(
        (repr(counts.kind), repr(counts.term), int(counts.holders[row]))
        for counts in columns.pod_index._terms.values()
        if counts.holders[row]
    )
    return {
        "allocatable": _by_resource(columns, columns.allocatable[:, row]),
        "requested": _by_resource(columns, columns.requested[:, row]),
        "nonzero requests": columns.nonzero_requested[:, row].tolist(),
        "number of pods": int(columns.pod_count[row]),
        "number of pods allowed": int(columns.allowed_pods[row]),
        "cordoned": bool(columns.unschedulable[row]),
        "taints": columns.taint_sets.keys[int(columns.taint_set_ids[row])],
        "pods": sorted(columns.pods[row]),
        "labels": {} if node is None else node.metadata.labels,
        "pods by priority": priorities,
        "host ports": ports,
        "affinity terms": terms,
        "CSI volumes": int(columns.storage.use.counts("csi.example.com", columns.size)[row]),
    }


def _counted(columns: NodeColumns, name: str, asked: NodeColumns) -> Facts:
    """Return the counts of pods by the queries that the older cache has answered."""
    row = columns.row_of(name)
    facts: Facts = {}
    for query in list(asked.pod_index._queries):
        counts = columns.pod_index.query(query)
        facts[f"pods of {query}"] = (int(counts.total[row]), int(counts.ending[row]))
    for key in list(asked._labels._columns):
        column = columns.label_column(key)
        value = int(column.ids[row])
        facts[f"label {key}"] = None if value < 0 else column.values.keys[value]
    return facts


def _by_resource(columns: NodeColumns, amounts: np.ndarray[Any, Any]) -> dict[str, int]:
    names = columns.resources.keys
    return {names[index]: int(amount) for index, amount in enumerate(amounts.tolist()) if amount}
