"""RebalancePlans as objects with a status."""

from __future__ import annotations

from typing import Any

from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.resources.resource_model import API_VERSION


def plan_object(name: str, *moves: tuple[str, str, str, str], phase: str = "Moving", **status: Any) -> RebalancePlan:
    """Return a plan.

    Args:
        moves: Pod, source, target and state of each move.
    """
    fields = ("pod", "source", "target", "state")
    return RebalancePlan.from_object(
        {
            "apiVersion": API_VERSION,
            "kind": "RebalancePlan",
            "metadata": {"name": name, "uid": f"uid-of-{name}", "generation": 1},
            "spec": {"objective": "Consolidate", "dryRun": False},
            "status": {
                "phase": phase,
                "planned": len(moves),
                "moves": [dict(zip(fields, move, strict=True)) for move in moves],
                **status,
            },
        }
    )
