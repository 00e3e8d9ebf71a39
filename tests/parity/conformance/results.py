"""Writes the result of an attempt in the conformance format; lists are sorted, so that equal results are equal text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.status import Status
from scheduler_core.snapshot.pod_info import PodInfo

_ENCODER = msgspec.json.Encoder()


def result_document(name: str, found: Examination) -> dict[str, Any]:
    """Convert a result to plain JSON types."""
    rejected_as_a_whole = not found.pre_filter.is_success
    names = found.pre_filter_nodes
    nodes, totals = found.feasible, found.totals.tolist()
    document: dict[str, Any] = {
        "name": name,
        "gated": None if found.gate.is_success else _verdict(found.gate, "code"),
        "prefilter": _verdict(found.pre_filter, "status") if rejected_as_a_whole else None,
        "prefilterNodes": None if names is None or rejected_as_a_whole else sorted(names),
        "nominatedOnly": found.nominated_only,
        "filter": {node: _verdict(status, "code") for node, status in found.rejected.items()},
        "feasible": sorted(nodes),
        "scores": {
            plugin: {
                node: {"raw": raw, "weighted": weighted}
                for node, raw, weighted in zip(nodes, part.raw.tolist(), part.weighted.tolist(), strict=True)
            }
            for plugin, part in found.scores.items()
        },
        "totals": dict(zip(nodes, totals, strict=True)) if totals else {},
        "best": list(found.best),
        "message": found.message or None,
        **_post_filter(found),
    }
    planned = found.planned_writes
    allocations = {} if planned is None else {node: writes for node in nodes if (writes := planned(node)) is not None}
    if any(allocations.values()):
        document["allocations"] = allocations
    if found.preemption is not None and found.preemption.released:
        document["deallocated"] = sorted(found.preemption.released)
    if found.error:
        document["error"] = found.error
    return document


def result_line(name: str, found: Examination) -> bytes:
    """Encode a result as one line of JSON with a line break."""
    return _ENCODER.encode(result_document(name, found)) + b"\n"


def _post_filter(found: Examination) -> dict[str, Any]:
    outcome, plan = found.post_filter, found.preemption
    acts = outcome is not None and outcome.status.is_success and bool(outcome.nominated_node)
    return {
        "postFilterCode": "" if outcome is None else outcome.status.code_name,
        "postFilter": {"nominatedNode": outcome.nominated_node, "victims": _keys(plan.evicted if plan else ())}
        if outcome is not None and acts
        else None,
        "preemptionMessage": None if outcome is None else outcome.status.message,
        "candidates": {
            candidate.node_name: {
                "victims": [info.key for info in candidate.victims],
                "pdbViolations": candidate.pdb_violations,
            }
            for candidate in (plan.candidates if plan else ())
        },
        "clearedNominations": _keys(plan.withdrawn if plan and acts else ()),
    }


def _keys(pods: Iterable[PodInfo]) -> list[str]:
    return sorted(info.key for info in pods)


def _verdict(status: Status, code_field: str) -> dict[str, Any]:
    return {code_field: status.code_name, "plugin": status.plugin, "reasons": sorted(status.reasons)}
