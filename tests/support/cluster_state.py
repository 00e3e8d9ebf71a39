"""State that scheduling cycles read and write, as plain values that tests compare.

The change log is left out, because it only causes readers to recompute.
"""

from __future__ import annotations

from typing import Any

from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.snapshot.node_columns import NodeColumns

_ARRAYS = (
    *("allocatable", "requested", "nonzero_requested", "allowed_pods", "pod_count", "taint_set_ids", "alive"),
    "unschedulable",
)


def cluster_state(context: CycleContext) -> dict[str, Any]:
    """Return the state of nodes, pods, gangs, nominations and the queue."""
    cache, queue = context.cache, context.queue
    return {
        **_of_columns(cache.columns),
        "placed": [
            (each.info.uid, each.info.row, each.info.node_name, each.info.priority, each.state)
            for each in cache.placed_pods()
        ],
        "assumed": cache.assumed_count,
        "gangs": [
            (gang.key, sorted(gang.placed), list(gang.waiting), gang.victims, gang.outcome, gang.needed)
            for gang in queue.gangs
        ],
        "nominations": (
            [(name, [info.uid for info in queue.nominator.nominated_pods(name)]) for name in queue.nominator.nodes()]
        ),
        "queue": [
            (place, pod.uid, pod.info.row, pod.info.priority, pod.attempts) for place, pod in queue.readings.places()
        ],
        "waiting": [entry.pod.uid for entry in context.waiting],
        "preemptions": len(context.services.preemptions),
        "start": context.node_order.next_start,
    }


def _of_columns(nodes: NodeColumns) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(nodes, name).tolist() for name in _ARRAYS}
    found["pods"] = [list(pods) for pods in nodes.pods]
    ports = nodes.host_ports
    found["ports"] = {
        key: (dict(use.rows), {address: dict(rows) for address, rows in use.by_address.items()})
        for key, use in ports._use.items()
    }
    found["hidden ports"] = set(ports._hidden)
    found["priorities"] = {
        priority: (column.rows.tolist(), column.total) for priority, column in nodes.priorities._columns.items()
    }
    # The first read of a count creates it, so counts that are all 0 are left out.
    index = nodes.pod_index
    found["terms"] = {key: (each.holders.tolist(), each.sum) for key, each in index.terms.items() if each.sum}
    found["queries"] = {
        query: (each.total.tolist(), each.ending.tolist()) for query, each in index._queries.items() if each.total.any()
    }
    return found
