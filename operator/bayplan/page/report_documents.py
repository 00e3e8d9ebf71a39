"""Documents of a report: those of the page, each built once, with explanations of pods and gangs that wait."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bayplan.explanation.building import explain_gang, explain_pod, named_gang
from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.kube.writes.api_dispatcher import WriteMetrics
from bayplan.page.node_map import DeviceCounts, NodeMap, NodeRows, NodesPanel
from bayplan.page.overview import OverviewPanel, WatchesPanel
from bayplan.page.page_sources import Commands, PageSources, Turns
from bayplan.page.pending_work import SHOWN, GangsPanel, PendingPanel, WaitingGangs
from bayplan.page.rates import RatesPanel
from bayplan.page.resource_panels import PlansPanel, ProfilesPanel, ReservationsPanel
from bayplan.resources.resource_model import format_time
from bayplan.simulation.packing import ResourceTotal
from bayplan.texts.document_formats import error_text
from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.scheduler import Scheduler

# -- one pod or gang --------------------------------------------------------------------------------------------------


class ShownAttempt(Struct, frozen=True, rename="camel"):
    """An ended attempt.

    Attributes:
        seconds_ago: Time since its end.
        profile: Scheduler name of the profile.
        result: ``scheduled``, ``unschedulable`` or ``error``; of a gang the reason of its condition.
        node: The chosen node, "" for none.
    """

    seconds_ago: float
    profile: str
    result: str
    node: str
    message: str


class Work(Struct, frozen=True, rename="camel"):
    """A pod or a gang.

    Attributes:
        kind: ``pod`` or ``gang``.
        attempts: Last attempts since the process started, newest first; of a member with those of its gang.
    """

    kind: str
    explanation: Explanation | GangExplanation
    attempts: tuple[ShownAttempt, ...]
    command: str


class WorkReader:
    """Reads one pod or gang on request."""

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources

    def pod(self, namespace: str, name: str) -> Work | None:
        """Return a pod, None if there is none; raises SchedulerCoreError if it cannot be explained."""
        pod, explanation = self._sources.find_pod(f"{namespace}/{name}"), self._sources.explain_pod(namespace, name)
        return None if pod is None or explanation is None else self.of_pod(pod, explanation)

    def of_pod(self, pod: Pod, explanation: Explanation) -> Work:
        gang = self._sources.scheduler.context.queue.gangs.key_of(pod)
        attempts = self._attempts(pod.metadata.uid, *(() if gang is None else (gang,)))
        return Work(
            "pod", explanation, attempts, self._sources.commands.explain(pod.metadata.namespace, pod.metadata.name)
        )

    def gang(self, namespace: str, name: str, source: GroupSource | None) -> Work | None:
        """Return a gang, None if there is none; raises SchedulerCoreError if it cannot be explained."""
        explanation = self._sources.explain_gang(namespace, name, source)
        if explanation is None:
            return None
        attempts = self._attempts(GroupKey(GroupSource(explanation.api), namespace, name))
        return Work("gang", explanation, attempts, self._sources.commands.explain(namespace, f"podgroup/{name}"))

    def _attempts(self, *subjects: Hashable) -> tuple[ShownAttempt, ...]:
        now = self._sources.clock.now()
        found = [attempt for subject in subjects for attempt in self._sources.attempts.of(subject)]
        found.sort(key=lambda attempt: -attempt.ended)
        return tuple(
            ShownAttempt(round(now - each.ended, 1), each.profile, each.result, each.node_name, each.message)
            for each in found
        )


# -- reports ----------------------------------------------------------------------------------------------------------


T = TypeVar("T")


class ReportedWork(Struct, frozen=True, rename="camel"):
    """An explained pod or gang.

    Attributes:
        document: A :class:`Work`, or the same as plain JSON types.
        side: The compared profile; "" without a comparison.
    """

    namespace: str
    name: str
    document: Any
    side: str = ""


class ReportDocuments(Struct, frozen=True, rename="camel"):
    """Documents of a report.

    Attributes:
        panels: Documents by the name of their panel, as structs or as plain JSON types.
        work: Explained pods and gangs. A report without panels shows the first one.
        taken: Time of the documents, RFC 3339; "" for virtual time, which has no ages.
        sides: Compared profiles as the user named them, by side. With sides, each panel has a document for each side.
        problems: What cannot be shown, in sentences; the panels and explanations that fail are left out.
    """

    panels: Mapping[str, Any] = {}
    work: tuple[ReportedWork, ...] = ()
    taken: str = ""
    sides: Mapping[str, str] = {}
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplanationLimits:
    """How much is explained.

    Attributes:
        pods: Maximum number of causes whose oldest pod is explained.
        gangs: Maximum number of explained gangs.
        seconds: Time of the documents after which no more gang is explained.
    """

    pods: int = SHOWN
    gangs: int = 10
    seconds: float = math.inf


_OF_A_RUNNING_OPERATOR = ExplanationLimits(pods=10, gangs=5, seconds=1.0)
"""Limits in a running operator: a dry run delays scheduling."""


def reported(work: Work) -> ReportedWork:
    return ReportedWork(work.explanation.namespace, work.explanation.name, work)


class DocumentReader:
    """Builds each document once."""

    def __init__(self, sources: PageSources, turns: Turns, limits: ExplanationLimits | None = None) -> None:
        self._given = sources
        self._sources = dataclasses.replace(sources, explain_pod=self._explain_pod)
        self._works = WorkReader(sources)
        self._turns = turns
        self._limits = limits or ExplanationLimits()
        self._work: dict[str, Work] = {}
        self._problems: list[str] = []

    async def cluster(self) -> ReportDocuments:
        """Return overview, pending pods, waiting gangs and nodes, and explanations of pods and gangs that wait."""
        turns, sources = self._turns, self._sources
        columns = sources.scheduler.context.cache.columns
        devices, gangs = DeviceCounts(columns.devices, sources.clock), GangsPanel(sources)
        turns.begin()
        overview = await self.panel("overview", OverviewPanel(sources, gangs, RatesPanel(sources), devices).build)
        nodes = await self.panel("nodes", NodesPanel(sources, NodeRows(columns), devices).build)
        pending = await self.panel("pending", PendingPanel(sources, dry_runs=self._limits.pods).build)
        waiting = await self.panel("gangs", gangs.build)
        built = {
            "overview": None if overview is None else replace(overview, objectives=()),
            "pending": pending,
            "gangs": waiting,
            "nodes": nodes,
        }
        panels = {name: document for name, document in built.items() if document is not None}
        explained = [*self._work.values(), *await self._explained_gangs(waiting)]
        turns.end()
        return ReportDocuments(panels, tuple(map(reported, explained)), problems=self.problems)

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be built so far, in sentences."""
        return tuple(self._problems)

    async def panel(self, name: str, build: Callable[[Turns], Awaitable[T]]) -> T | None:
        """Return the document of a panel; None, and a problem, if it cannot be built."""
        try:
            return await build(self._turns)
        except Exception as error:  # noqa: BLE001 - shown in the report, so that the other panels are shown, too
            self._problems.append(f"the panel {name} cannot be shown: {error_text(f'the panel {name}', error)}")
            return None

    async def _explained_gangs(self, waiting: WaitingGangs | None) -> list[Work]:
        found = []
        for each in () if waiting is None else waiting.gangs[: self._limits.gangs]:
            await self._turns.pause()
            if self._sources.scheduler.context.suspension.is_on or self._turns.spent > self._limits.seconds:
                break
            namespace, _, name = each.gang.partition("/")
            try:
                work = self._works.gang(namespace, name, GroupSource(each.api))
            except Exception as error:  # noqa: BLE001 - shown in the report, so that the other gangs are shown, too
                problem = error_text("the explanation of a gang", error)
                self._problems.append(f"PodGroup {each.gang} cannot be explained: {problem}")
                continue
            if work is not None:
                found.append(work)
        return found

    def _explain_pod(self, namespace: str, name: str) -> Explanation | None:
        pod, explanation = self._given.find_pod(f"{namespace}/{name}"), self._given.explain_pod(namespace, name)
        if pod is not None and explanation is not None:
            self._work[pod.key] = self._works.of_pod(pod, explanation)
        return explanation


def compared(titles: tuple[str, str], before: ReportDocuments, after: ReportDocuments) -> ReportDocuments:
    """Return the documents of two profiles, which have the same panels, as those of one report."""
    sides = {"before": before, "after": after}
    return ReportDocuments(
        panels={
            name: {side: each.panels[name] for side, each in sides.items()}
            for name in before.panels
            if name in after.panels
        },
        work=tuple(replace(work, side=side) for side, each in sides.items() for work in each.work),
        sides=dict(zip(sides, titles, strict=True)),
        problems=(*before.problems, *after.problems),
    )


def profile_revisions(scheduler: Scheduler) -> list[str]:
    """Return the live profiles with their revisions, by name."""
    return sorted(f"{instance.name} revision {instance.revision}" for instance in scheduler.context.profiles)


def with_packing(documents: ReportDocuments, totals: Mapping[str, ResourceTotal]) -> ReportDocuments:
    """Return the documents of a simulation with the fragmentation of its tables: all nodes, for decided pods."""
    nodes = documents.panels.get("nodes")
    if not isinstance(nodes, NodeMap):
        return documents
    figures = tuple(
        replace(
            each,
            largest_free=totals[each.resource].largest_free_on_one_node,
            unusable_share=totals[each.resource].unusable_share_of_free,
        )
        if each.resource in totals
        else replace(each, unusable_share=None)
        for each in nodes.fragmentation
    )
    shown = replace(nodes, fragmentation=figures, unusable_by="decided pods")
    return replace(documents, panels={**documents.panels, "nodes": shown})


async def operator_documents(sources: PageSources, rates: RatesPanel | None) -> ReportDocuments:
    """Return all documents of a running operator; none of a standby, or before the operator is ready."""
    if sources.readiness.role or sources.readiness.missing:
        return ReportDocuments()
    turns = Turns(sources.clock, suspension=sources.scheduler.context.suspension)
    await turns.readable()
    reader = DocumentReader(sources, turns, _OF_A_RUNNING_OPERATOR)
    found = await reader.cluster()
    overview = found.panels.get("overview")
    more: dict[str, Callable[[Turns], Awaitable[Struct]]] = {
        "profiles": ProfilesPanel(sources).build,
        "watches": WatchesPanel(sources).build,
    }
    if sources.reservations is not None:
        more["reservations"] = ReservationsPanel(sources).build
    if sources.plans is not None:
        more["plans"] = PlansPanel(sources).build
    if rates is not None:
        more["rates"] = rates.build
    panels = dict(found.panels)
    for name, build in more.items():
        document = await reader.panel(name, build)
        if document is not None:
            panels[name] = document
    if rates is not None and overview is not None:
        panels["overview"] = replace(overview, objectives=rates.objectives())
    taken = format_time(sources.clock.wall())
    return ReportDocuments(panels, found.work, taken, problems=reader.problems)


# -- simulations ------------------------------------------------------------------------------------------------------


async def simulated_documents(scheduler: Scheduler, commands: Commands) -> ReportDocuments:
    """Return the documents of a scheduler at the end of a simulation, by the builders that serve a running operator.

    They are overview, pending pods, waiting gangs and nodes, and explanations of pods and gangs that wait.
    """
    context = scheduler.context
    clock = context.clock
    pods = {queued.info.key: queued.info.pod for _, queued in context.queue.readings.places()}

    def explained_pod(namespace: str, name: str) -> Explanation | None:
        pod = pods.get(f"{namespace}/{name}")
        return None if pod is None else explain_pod(scheduler, pod)

    def explained_gang(namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
        gang = named_gang(context, namespace, name, source)
        return None if gang is None else explain_gang(scheduler, gang)

    sources = PageSources(
        scheduler=scheduler,
        readiness=Readiness(()),
        clock=clock,
        started=clock.now(),
        attempts=AttemptHistory(),
        writes=WriteMetrics(clock),
        find_pod=pods.get,
        explain_pod=explained_pod,
        explain_gang=explained_gang,
        profile_states=tuple,
        profile_readings=lambda: None,
        server=ServerSupport,
        commands=commands,
    )
    return await DocumentReader(sources, Turns(clock, math.inf)).cluster()
