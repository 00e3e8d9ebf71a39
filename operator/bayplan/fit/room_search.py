"""Room for pods that do not exist: dry runs find it, and it is held between two scheduling cycles.

A long dry run is made in a copy of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bayplan.fit.request_reading import FitQuestion, read_question
from bayplan.process.copies import BackgroundDocuments, Document
from bayplan.simulation.cluster_files import Place, Placed
from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.fit.fit_search import FitAnswer, FitVerdict
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import HeldPod, HeldRoom, Holder, Terms
from scheduler_core.model.devices import AllocationResult
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.pod_info import NO_ROW

_STEPS_IN_COPY = 500_000
_OK, _INVALID = 200, 422


class FitResult(Struct, frozen=True):
    """Result of a dry run.

    Attributes:
        nodes: Node of each pod of the request; empty if not all of them fit.
        devices: Devices of each pod of the request for all its claims; () for a pod without claims, and if one of them
            has devices already.
        ends: UIDs of the pods that are evicted, or whose end is awaited.
        message: The verdict in words, with the nearest miss if the pods do not fit.
        is_impossible: Whether they fit on no node, whatever pods end.
        is_given_up: Whether the search took more steps than it may.
    """

    nodes: tuple[str, ...] = ()
    devices: tuple[tuple[AllocationResult, ...], ...] = ()
    ends: tuple[str, ...] = ()
    message: str = ""
    is_impossible: bool = False
    is_given_up: bool = False

    @property
    def fits(self) -> bool:
        return bool(self.nodes)


_decode = msgspec.json.Decoder(FitResult).decode


class FitDryRun:
    """Dry runs on the state of the scheduler, the long ones in a copy of the process."""

    def __init__(self, scheduler: Scheduler, documents: BackgroundDocuments) -> None:
        self._scheduler = scheduler
        self._documents = documents

    def read(
        self, what: str, objects: Sequence[Mapping[str, Any]], priority_classes: Sequence[Mapping[str, Any]]
    ) -> FitRequest:
        """Return the request of manifests.

        Args:
            what: The object that they come from, for messages.

        Raises:
            ConfigError: With every problem of the manifests.
        """
        placed = [Placed(each, Place(what, 0)) for each in objects]
        question = FitQuestion(objects=placed, priority_classes=priority_classes)
        return read_question(question, self._scheduler.decoded)[0]

    async def search(self, request: FitRequest) -> FitResult:
        """Return where pods fit that do not exist; raises SchedulerCoreError if a pod cannot be compiled."""
        scheduler = self._scheduler
        background = scheduler.context.background

        def make() -> Document:
            try:
                steps = _STEPS_IN_COPY if background.is_copy else None
                answer = fit_search(scheduler.context, scheduler.reservations).answer(request, steps)
                return Document(_OK, msgspec.json.encode(_result(answer)))
            except SchedulerCoreError as error:
                return Document(_INVALID, str(error).encode())

        await scheduler.context.suspension.over()
        document = await self._documents.build(make, is_given_up=_is_given_up)
        if document.status != _OK:
            raise SchedulerCoreError(document.body.decode())
        return _decode(document.body)


def _is_given_up(document: Document) -> bool:
    return document.status == _OK and _decode(document.body).is_given_up


def _result(answer: FitAnswer) -> FitResult:
    count = len(answer.infos)
    chosen = answer.chosen
    match answer.verdict:
        case FitVerdict.FITS_NOW | FitVerdict.FITS_AFTER_EVICTIONS if chosen is not None:
            nodes = tuple(chosen.nodes[info.uid] for info in answer.infos)
            ends = tuple(info.uid for info in (*chosen.victims, *chosen.awaited))
            text = f"All {count} pods fit on {len(set(nodes))} nodes"
            text += f" after the end of {len(ends)} pods" if ends else ""
            devices = tuple(chosen.devices.get(info.uid, ()) for info in answer.infos)
            return FitResult(nodes, devices, ends, f"{text}; their room is held until they are scheduled")
        case FitVerdict.IMPOSSIBLE:
            return FitResult(message=f"The pods never fit on the present nodes: {answer.reason}", is_impossible=True)
        case FitVerdict.GAVE_UP:
            return FitResult(message=f"It was not determined whether the pods fit: {answer.reason}", is_given_up=True)
        case _:
            now = answer.now
            fitting = sum(info.uid in now.nodes for info in answer.infos) if now is not None else 0
            miss = next((f"; {each.name}: {each.message}" for each in now.unplaced), "") if now is not None else ""
            return FitResult(message=f"{fitting} of {count} pods fit now{miss}")


class RoomHolding:
    """Beginning and end of held room, for the controllers that search it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._reservations = scheduler.reservations
        self._suspension = scheduler.context.suspension
        self._nodes = scheduler.context.cache.columns

    def room(self, holder: Holder, request: FitRequest, found: FitResult, terms: Terms) -> HeldRoom:
        """Return room for the pods of a request, each with a slot on the node and with the devices of a dry run."""
        devices = found.devices or ((),) * len(found.nodes)
        slots = [
            HeldPod(self._nodes.compile_pod(pod), holder.pods.slot_class(pod), node_name, of_pod)
            for pod, node_name, of_pod in zip(request.pods, found.nodes, devices, strict=True)
        ]
        return HeldRoom(holder, slots, self._nodes, terms)

    async def hold(self, room: HeldRoom) -> bool:
        """Hold room, which ends the earlier room of its holder; if it does not exist, hold nothing and return False."""
        began = list[bool]()
        await self._suspension.over()
        self._suspension.run_or_defer(lambda: began.append(self._reservations.hold(room)))
        return began[0]

    async def end(self, room: HeldRoom) -> None:
        """End room, unless it has ended or other room has replaced it."""
        await self._suspension.over()
        self._reservations.release(room)

    def node_states(self, names: Iterable[str]) -> dict[str, object]:
        """Return what decides whether pods may use nodes, by name; None for a node that does not exist."""
        found = dict[str, object]()
        for name in names:
            row = self._nodes.row_of(name)
            node = None if row == NO_ROW else self._nodes.nodes[row]
            found[name] = None if node is None else (node.spec.unschedulable, node.spec.taints, node.metadata.labels)
        return found
