"""Documents of the page for the scheduler of a simulation, by the same builders as for a running operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.explanation.gang_building import explain_gang, named_gang
from bayplan.explanation.pod_building import explain_pod
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.kube.writes.api_dispatcher import WriteMetrics
from bayplan.page.page_sources import PageSources, Turns
from bayplan.page.pending_work import PendingWork
from bayplan.page.report_documents import DocumentReader, ReportDocuments, ReportedWork
from bayplan.page.waiting_gangs import WaitingGangs
from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler


class SimulationCommands(Struct, frozen=True):
    """Commands that give the same as the panels.

    Attributes:
        simulate: The simulation.
        explain: Returns the command that explains a pod or ``podgroup/NAME``, by namespace and name; None if no command
            does.
    """

    simulate: str
    explain: Callable[[str, str], str] | None = None


class SimulatedDocuments:
    """Builds the documents.

    Args:
        scheduler: The scheduler, at the end of the simulation.
        commands: Commands for the reader.
    """

    def __init__(self, scheduler: Scheduler, commands: SimulationCommands) -> None:
        self._scheduler = scheduler
        self._commands = commands
        self._pods = {queued.info.key: queued.info.pod for _, queued in scheduler.context.queue.readings.places()}

    async def build(self) -> ReportDocuments:
        """Return overview, pending pods, waiting gangs and nodes, and explanations of pods and gangs that wait."""
        clock = self._scheduler.context.clock
        found = await DocumentReader(self._sources(), Turns(clock, math.inf)).cluster()
        simulate = self._commands.simulate
        changes: dict[str, Callable[[Any], Any]] = {
            "overview": lambda document: replace(document, command=simulate),
            "pending": self._pending,
            "gangs": self._gangs,
            "nodes": lambda document: replace(document, command=simulate),
        }
        panels = {name: changes[name](document) for name, document in found.panels.items()}
        return ReportDocuments(panels, tuple(map(self._with_command, found.work)), problems=found.problems)

    def _pending(self, document: PendingWork) -> PendingWork:
        groups = tuple(replace(group, command=self._explain(group.examples[0])) for group in document.groups)
        return replace(document, groups=groups, command=self._commands.simulate)

    def _gangs(self, document: WaitingGangs) -> WaitingGangs:
        gangs = tuple(replace(each, command=self._explain(each.gang, "podgroup/")) for each in document.gangs)
        return replace(document, gangs=gangs, command=self._commands.simulate)

    def _with_command(self, work: ReportedWork) -> ReportedWork:
        kind = "podgroup/" if work.document.kind == "gang" else ""
        command = self._explain(f"{work.namespace}/{work.name}", kind)
        return replace(work, document=replace(work.document, command=command))

    def _explain(self, key: str, kind: str = "") -> str:
        namespace, _, name = key.partition("/")
        return "" if self._commands.explain is None else self._commands.explain(namespace, f"{kind}{name}")

    def _explain_pod(self, namespace: str, name: str) -> Explanation | None:
        pod = self._pods.get(f"{namespace}/{name}")
        return None if pod is None else explain_pod(self._scheduler, pod)

    def _explain_gang(self, namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
        gang = named_gang(self._scheduler.context, namespace, name, source)
        return None if gang is None else explain_gang(self._scheduler, gang)

    def _sources(self) -> PageSources:
        clock = self._scheduler.context.clock
        return PageSources(
            scheduler=self._scheduler,
            readiness=Readiness(()),
            clock=clock,
            started=clock.now(),
            attempts=AttemptHistory(),
            writes=WriteMetrics(clock),
            find_pod=self._pods.get,
            explain_pod=self._explain_pod,
            explain_gang=self._explain_gang,
            profile_states=tuple,
            profile_readings=lambda: None,
            server=ServerSupport,
        )
