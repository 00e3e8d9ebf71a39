"""Writes what an attempt found as a result in the conformance format.

Owns the field names and the order within lists (sorted, so that equal results are equal text). It must not decide
anything.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler_core.cycle.examination import Examination
from scheduler_core.framework.status import Status

_ENCODER = msgspec.json.Encoder()


def result_document(name: str, found: Examination) -> dict[str, Any]:
    """Give a result as plain JSON types.

    Args:
        name: The case's name.
        found: The attempt.

    Returns:
        A document with every field of the format; those of preemption say that it was not run.
    """
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
        "postFilterCode": "",
        "postFilter": None,
        "preemptionMessage": None,
        "candidates": {},
        "clearedNominations": [],
    }
    if found.error:
        document["error"] = found.error
    return document


def result_line(name: str, found: Examination) -> bytes:
    """Give a result as one line of JSON, the line's end included."""
    return _ENCODER.encode(result_document(name, found)) + b"\n"


def _verdict(status: Status, code_field: str) -> dict[str, Any]:
    return {code_field: status.code_name, "plugin": status.plugin, "reasons": sorted(status.reasons)}
