"""Compares a cache that was updated incrementally with a cache that was filled at once.

Everything is compared by node name, because node rows differ between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.framework.queued_pod import Place
from scheduler_core.snapshot.node_columns import NodeColumns

Facts = dict[str, Any]


def cache_differences(tested: CycleContext, fresh: CycleContext) -> Iterator[str]:
    """Yield each fact that differs."""
    yield from _differences("", _cluster_facts(tested, fresh), _cluster_facts(fresh, fresh))
    ours, reference = tested.cache.columns, fresh.cache.columns
    names = sorted(name for name in ours.names if name is not None)
    if names != sorted(name for name in reference.names if name is not None):
        yield f"the cache has nodes {names}"
        return
    for name in names:
        yield from _differences(f"node {name}: ", _node_facts(ours, name), _node_facts(reference, name))
        yield from _differences(f"node {name}: ", _query_facts(ours, name, ours), _query_facts(reference, name, ours))


def _differences(where: str, ours: Facts, reference: Facts) -> Iterator[str]:
    for key in sorted({*ours, *reference}, key=str):
        if ours.get(key) != reference.get(key):
            yield f"{where}{key} is {ours.get(key)} in the cache and {reference.get(key)} on the server"


def _cluster_facts(context: CycleContext, fresh: CycleContext) -> Facts:
    cache, nominator, storage = context.cache, context.queue.nominator, context.cache.columns.storage
    facts: Facts = {
        "pods on nodes": sorted(placed.info.uid for placed in cache.placed_pods()),
        "pods on unknown nodes": sorted((node, uid) for node, pods in cache._without_node.items() for uid in pods),
        # A scheduler ignores the nomination of a gated pod when it starts.
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
    """Return the resource claims, and the devices that they use."""
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
        for (protocol, port), use in columns.host_ports._use.items()
        for address, holders in use.by_address.items()
        if row in holders
    )
    terms = sorted(
        (repr(counts.kind), repr(counts.term), int(counts.holders[row]))
        for counts in columns.pod_index.terms.values()
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


def _query_facts(columns: NodeColumns, name: str, tested: NodeColumns) -> Facts:
    """Return counts of pods, for the queries that the tested cache has answered."""
    row = columns.row_of(name)
    facts: Facts = {}
    for query in list(tested.pod_index._queries):
        counts = columns.pod_index.query(query)
        facts[f"pods of {query}"] = (int(counts.total[row]), int(counts.ending[row]))
    for key in list(tested._labels._columns):
        column = columns.label_column(key)
        value = int(column.ids[row])
        facts[f"label {key}"] = None if value < 0 else column.values.keys[value]
    return facts


def _by_resource(columns: NodeColumns, amounts: np.ndarray[Any, Any]) -> dict[str, int]:
    names = columns.resources.keys
    return {names[index]: int(amount) for index, amount in enumerate(amounts.tolist()) if amount}
