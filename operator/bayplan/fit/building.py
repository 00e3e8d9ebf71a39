"""Builds the answer to a request on the state of a scheduler, as a document."""

from __future__ import annotations

from bayplan.extenders.http_extender import extenders_skipped_notice
from bayplan.fit.documents import (
    FitDocument,
    FitEvictions,
    FitGroup,
    FitNewNodes,
    PlacedPod,
    UnplacedItem,
)
from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.explain.findings import victims_of
from scheduler_core.fit.answers import FitAnswer, FitVerdict
from scheduler_core.fit.requests import FitRequest
from scheduler_core.fit.trial import TrialResult, Unplaced
from scheduler_core.scheduler import Scheduler


def fit_document(
    scheduler: Scheduler, request: FitRequest, steps: int | None = None, notices: tuple[str, ...] = ()
) -> FitDocument:
    """Answer a request between two cycles; nothing is changed.

    Args:
        steps: Maximum number of steps; None for that of dry runs.

    Raises:
        SchedulerCoreError: A pod or the node template cannot be compiled.
    """
    answer = fit_search(scheduler.context, scheduler.reservations).answer(request, steps)
    names = {info.uid: info.key for info in answer.infos}
    chosen = answer.chosen or TrialResult()
    placed = tuple(PlacedPod(names[uid], node) for uid, node in chosen.nodes.items() if uid in names)
    others = len(chosen.nodes) - len(placed)
    evicting = answer.after_evictions
    return FitDocument(
        verdict=answer.verdict,
        headline=_headline(answer, request, len(placed)),
        pods=len(answer.infos),
        placed=placed,
        nodes=len({each.node for each in placed}),
        groups=tuple(FitGroup(str(key), domain) for key, domain in chosen.domains.items()),
        evictions=None if evicting is None else _evictions(evicting),
        new_nodes=_new_nodes(answer, request),
        unplaced=() if answer.now is None else tuple(map(_unplaced, answer.now.unplaced)),
        reason=answer.reason or None,
        steps=answer.steps,
        notices=(*notices, *_notices(scheduler, request, others)),
    )


def _evictions(found: TrialResult) -> FitEvictions:
    return FitEvictions(len(found.victims), victims_of(found.victims), len(found.awaited), found.pdb_violations)


def _new_nodes(answer: FitAnswer, request: FitRequest) -> FitNewNodes | None:
    if request.template is None or request.max_new <= 0 or answer.verdict is FitVerdict.FITS_NOW:
        return None
    found, least = answer.with_new_nodes, answer.least_new_nodes
    return FitNewNodes(
        None if found is None else len(found.new_nodes), least if least < _NO_NUMBER else None, request.max_new
    )


_NO_NUMBER = 1 << 40
"""Bound of new nodes if no number of them helps."""


def _unplaced(item: Unplaced) -> UnplacedItem:
    return UnplacedItem(item.name, "Pod" if item.group is None else item.group.source.kind, item.message)


def _notices(scheduler: Scheduler, request: FitRequest, others: int) -> list[str]:
    profiles = scheduler.context.profiles
    found = []
    for name in sorted({pod.spec.scheduler_name for pod in request.pods}):
        instance = profiles.get(name)
        if instance is None:
            continue
        skipped = extenders_skipped_notice(instance.config.extenders)
        found += [f"profile {name}: {skipped}"] if skipped else []
        if request.groups and not instance.places_gangs:
            found.append(f"profile {name} schedules gangs by Permit; the pods are evaluated one by one")
    if others:
        found.append(f"{others} waiting members of the same groups are placed with the pods of the request")
    return found


def _headline(answer: FitAnswer, request: FitRequest, placed: int) -> str:
    count = len(answer.infos)
    pods = "the pod" if count == 1 else f"all {count} pods"
    match answer.verdict:
        case FitVerdict.FITS_NOW:
            return f"{pods} would be scheduled now"
        case FitVerdict.FITS_AFTER_EVICTIONS:
            assert answer.after_evictions is not None
            victims, awaited = len(answer.after_evictions.victims), len(answer.after_evictions.awaited)
            parts = [f"the eviction of {_counted(victims, 'pod')}"] if victims else []
            parts += [f"the end of {_counted(awaited, 'terminating pod')}"] if awaited else []
            return f"{pods} would be scheduled after {' and '.join(parts)}"
        case FitVerdict.FITS_WITH_NEW_NODES:
            assert answer.with_new_nodes is not None
            nodes = _counted(len(answer.with_new_nodes.new_nodes), "new node")
            return f"{pods} would be scheduled with {nodes} of the template"
        case FitVerdict.IMPOSSIBLE:
            where = "and on nodes of the template " if request.template is not None and request.max_new else ""
            return f"impossible on the present nodes {where}whatever else runs there: {answer.reason}"
        case FitVerdict.GAVE_UP:
            return f"no answer: {answer.reason}"
        case _:
            return f"does not fit now: {placed} of {_counted(count, 'pod')} would be scheduled"


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
