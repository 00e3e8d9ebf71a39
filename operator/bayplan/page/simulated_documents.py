"""Documents of the page for the scheduler of a simulation, by the same builders as for a running operator."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from bayplan.explanation.gang_building import explain_gang, named_gang
from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.pod_building import explain_pod
from bayplan.explanation.pod_model import Explanation
from bayplan.kube.readiness import Readiness
from bayplan.kube.server_version_support import ServerSupport
from bayplan.kube.writes.write_metrics import WriteMetrics
from bayplan.page.node_layout import NodeRows
from bayplan.page.node_map import NodesPanel
from bayplan.page.overview import OverviewPanel
from bayplan.page.page_sources import PageSources, Turns
from bayplan.page.pending_work import DRY_RUNS, PendingPanel, PendingWork
from bayplan.page.rates import RatesPanel
from bayplan.page.report_file import ReportDocuments
from bayplan.page.resource_amounts import NodeDevices
from bayplan.page.waiting_gangs import GangsPanel, WaitingGangs
from bayplan.page.work import Work
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.metrics.attempt_history import AttemptHistory
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler

_EXPLAINED_GANGS = 10


class SimulationCommands(Struct, frozen=True):
    """Commands that give the same as the panels.

    Attributes:
        simulate: The simulation.
        explain: Returns the command that explains a pod or ``podgroup/NAME``, by namespace and name.
    """

    simulate: str
    explain: Callable[[str, str], str]


class SimulatedDocuments:
    """Builds the documents.

    Args:
        scheduler: The scheduler, at the end of the simulation.
        commands: Commands for the reader.
    """

    def __init__(self, scheduler: Scheduler, commands: SimulationCommands) -> None:
        self._scheduler = scheduler
        self._commands = commands
        self._turns = Turns(scheduler.context.clock, math.inf)
        self._pods = {queued.info.key: queued.info.pod for _, queued in scheduler.context.queue.readings.places()}
        self._work: dict[str, Work] = {}

    async def build(self) -> ReportDocuments:
        """Return overview, pending pods, waiting gangs and nodes, and explanations of pods and gangs that wait."""
        sources, columns = self._sources(), self._scheduler.context.cache.columns
        devices, gangs = NodeDevices(columns.devices, sources.clock), GangsPanel(sources)
        overview = await OverviewPanel(sources, gangs, RatesPanel(sources), devices).build(self._turns)
        nodes = await NodesPanel(sources, NodeRows(columns), devices).build(self._turns)
        pending = await self._pending(sources)
        waiting = await gangs.build(self._turns)
        panels = {
            "overview": replace(overview, objectives=(), command=self._commands.simulate),
            "pending": pending,
            "gangs": self._with_commands(waiting),
            "nodes": replace(nodes, command=self._commands.simulate),
        }
        return ReportDocuments(panels, (*self._work.values(), *self._explained_gangs(waiting)))

    async def _pending(self, sources: PageSources) -> PendingWork:
        """Return the pending pods with a dry run for each group; a build of the panel makes only a few of them."""
        panel = PendingPanel(sources)
        document = await panel.build(self._turns)
        for _ in range(0, len(document.groups), DRY_RUNS):
            document = await panel.build(self._turns)
        groups = tuple(replace(group, command=self._explain(group.examples[0])) for group in document.groups)
        return replace(document, groups=groups, command=self._commands.simulate)

    def _with_commands(self, waiting: WaitingGangs) -> WaitingGangs:
        gangs = tuple(replace(each, command=self._explain(each.gang, "podgroup/")) for each in waiting.gangs)
        return replace(waiting, gangs=gangs, command=self._commands.simulate)

    def _explained_gangs(self, waiting: WaitingGangs) -> list[Work]:
        found = []
        for each in waiting.gangs[:_EXPLAINED_GANGS]:
            namespace, _, name = each.gang.partition("/")
            try:
                explanation = self._explain_gang(namespace, name, GroupSource(each.api))
            except SchedulerCoreError:
                # The reader has the command, which reports the error.
                continue
            if explanation is not None:
                found.append(Work("gang", explanation, (), self._explain(each.gang, "podgroup/")))
        return found

    def _explain(self, key: str, kind: str = "") -> str:
        namespace, _, name = key.partition("/")
        return self._commands.explain(namespace, f"{kind}{name}")

    def _explain_pod(self, namespace: str, name: str) -> Explanation | None:
        pod = self._pods.get(f"{namespace}/{name}")
        if pod is None:
            return None
        explanation = explain_pod(self._scheduler, pod)
        self._work[pod.key] = Work("pod", explanation, (), self._explain(pod.key))
        return explanation

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
