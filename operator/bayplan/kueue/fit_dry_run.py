"""The dry run that answers an admission check: where the pods of a Workload fit now, or after evictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bayplan.fit.request_reading import FitQuestion, read_question
from bayplan.process.background_documents import BackgroundDocuments, Document
from bayplan.simulation.cluster_files import Place, Placed
from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.fit.answers import FitAnswer, FitVerdict
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import POD_SET_LABEL, HeldPod, HeldRoom, HeldWorkload
from scheduler_core.scheduler import Scheduler

_STEPS_IN_COPY = 500_000
_OK, _INVALID = 200, 422


class FitResult(Struct, frozen=True):
    """Result of a dry run.

    Attributes:
        nodes: Node of each pod of the request; empty if not all of them fit.
        ends: UIDs of the pods that are evicted, or whose end is awaited.
        message: The verdict in words, with the nearest miss if the pods do not fit.
    """

    nodes: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    message: str = ""

    @property
    def fits(self) -> bool:
        return bool(self.nodes)


_decode = msgspec.json.Decoder(FitResult).decode


class FitDryRun:
    """Dry runs on the state of the scheduler.

    Args:
        documents: Runs long dry runs in a copy of the process.
    """

    def __init__(self, scheduler: Scheduler, documents: BackgroundDocuments) -> None:
        self._scheduler = scheduler
        self._documents = documents

    async def search(
        self, workload: HeldWorkload, pods: Sequence[dict[str, Any]], priority_classes: Sequence[dict[str, Any]]
    ) -> tuple[FitResult, HeldRoom | None]:
        """Return where pods fit that do not exist, and the room to hold; None if they do not fit.

        Raises:
            ConfigError: With every problem of the manifests.
            SchedulerCoreError: A pod cannot be compiled.
        """
        scheduler = self._scheduler
        placed = [Placed(each, Place(f"Workload {workload.namespace}/{workload.name}", 0)) for each in pods]
        request, _ = read_question(FitQuestion(objects=placed, priority_classes=priority_classes), scheduler.decoded)
        background = scheduler.context.background

        def make() -> Document:
            try:
                steps = _STEPS_IN_COPY if background.is_copy else None
                answer = fit_search(scheduler.context, scheduler.reservations).answer(request, steps)
                return Document(_OK, msgspec.json.encode(_result(answer)))
            except SchedulerCoreError as error:
                return Document(_INVALID, str(error).encode())

        await scheduler.context.suspension.over()
        document = await self._documents.build(make)
        if document.status != _OK:
            raise SchedulerCoreError(document.body.decode())
        found = _decode(document.body)
        return found, self._room(workload, request, found) if found.fits else None

    def _room(self, workload: HeldWorkload, request: FitRequest, found: FitResult) -> HeldRoom:
        nodes = self._scheduler.context.cache.columns
        slots = [
            HeldPod(nodes.compile_pod(pod), pod.metadata.labels[POD_SET_LABEL], node_name)
            for pod, node_name in zip(request.pods, found.nodes, strict=True)
        ]
        return HeldRoom(workload, slots, frozenset(found.ends), nodes)


def _result(answer: FitAnswer) -> FitResult:
    count = len(answer.infos)
    chosen = answer.chosen
    match answer.verdict:
        case FitVerdict.FITS_NOW | FitVerdict.FITS_AFTER_EVICTIONS if chosen is not None:
            nodes = tuple(chosen.nodes[info.uid] for info in answer.infos)
            ends = tuple(info.uid for info in (*chosen.victims, *chosen.awaited))
            text = f"All {count} pods fit on {len(set(nodes))} nodes"
            text += f" after the end of {len(ends)} pods" if ends else ""
            return FitResult(nodes, ends, f"{text}; their room is held until they are scheduled")
        case FitVerdict.IMPOSSIBLE:
            return FitResult(message=f"The pods never fit on the present nodes: {answer.reason}")
        case FitVerdict.GAVE_UP:
            return FitResult(message=f"It was not determined whether the pods fit: {answer.reason}")
        case _:
            now = answer.now
            fitting = sum(info.uid in now.nodes for info in answer.infos) if now is not None else 0
            miss = next((f"; {each.name}: {each.message}" for each in now.unplaced), "") if now is not None else ""
            return FitResult(message=f"{fitting} of {count} pods fit now{miss}")
