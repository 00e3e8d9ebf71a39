"""Running pods that may be moved, and plans for a scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from scheduler_core.dry_run_assembly import plan_search
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.movable_pod import EvictionMarks, LocalVolume, MovableMeta, MovableSpec
from scheduler_core.model.pod import Pod
from scheduler_core.rebalance.requests import RebalancePlan, RebalanceRequest
from tests.support.builders import pod
from tests.support.scheduler_state import scheduler_state
from tests.support.scheduling import Rig


def movable(
    name: str,
    node_name: str = "",
    cpus: int = 1,
    *,
    of: str = "ReplicaSet",
    marks: Mapping[str, str] | None = None,
    local: Iterable[LocalVolume] = (),
    **fields: Any,
) -> Pod:
    """Return a pod as it is decoded if moves are planned.

    Args:
        of: Kind of its controller; "" for none.
        marks: Values of annotations, by the names of the fields.
        local: Its volumes.
    """
    owners = [OwnerReference(of, f"{name}-owner", f"uid-of-{name}-owner", "apps/v1", controller=True)] if of else []
    fields.setdefault("requests", {"cpu": str(cpus)})
    made = pod(name, node_name=node_name, owners=owners, **fields)
    meta = MovableMeta(**asdict(made.metadata), annotations=EvictionMarks(**(marks or {})))
    spec = MovableSpec(**{**_fields_of(made), "volumes": tuple(local)})
    return Pod(meta, spec, made.status)


def _fields_of(made: Pod) -> dict[str, Any]:
    return {name: getattr(made.spec, name) for name in made.spec.__struct_fields__}


def planned(made: Rig, request: RebalanceRequest, limit: int | None = 10_000_000) -> RebalancePlan:
    """Plan, and assert that nothing is changed."""
    search = plan_search(made.context, made.scheduler.reservations)
    before = scheduler_state(made.scheduler)
    plan = search.plan(request, limit)
    assert scheduler_state(made.scheduler) == before
    return plan


def moves_of(plan: RebalancePlan) -> dict[str, tuple[str, str]]:
    """Return source and target of each moved pod, by its name."""
    return {move.info.pod.metadata.name: (move.source, move.target) for move in plan.moves}
