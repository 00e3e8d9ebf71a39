"""All documents of the page, and the tasks that keep them current."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from bayplan.page.document_stream import DocumentStream
from bayplan.page.node_map import NodeCard, NodeDevices, NodeRows, NodesPanel, read_node
from bayplan.page.overview import OverviewPanel
from bayplan.page.page_sources import PageSources, Panel, Turns
from bayplan.page.pending_work import GangsPanel, PendingPanel
from bayplan.page.problems import WatchesPanel
from bayplan.page.profiles_panel import ProfilesPanel
from bayplan.page.rates import INTERVAL_SECONDS, RatesPanel
from bayplan.page.report_documents import ReportDocuments, Work, WorkReader, operator_documents
from bayplan.page.room import Room, RoomQuery, RoomReader
from scheduler_core.model.pod_group import GroupSource

log = logging.getLogger(__name__)

_RESTART_SECONDS = 10.0


class PageDocuments:
    """Documents of the page.

    Attributes:
        stream: Documents that change, and their viewers.
        work: One pod or gang.
    """

    def __init__(self, sources: PageSources, viewers: int) -> None:
        context = sources.scheduler.context
        columns = context.cache.columns
        devices, rows = NodeDevices(columns.devices, sources.clock), NodeRows(columns)
        self._sources = sources
        self._rates = rates = RatesPanel(sources)
        gangs = GangsPanel(sources)
        panels: dict[str, Panel] = {
            "overview": OverviewPanel(sources, gangs, rates, devices),
            "pending": PendingPanel(sources),
            "gangs": gangs,
            "profiles": ProfilesPanel(sources),
            "rates": rates,
            "watches": WatchesPanel(sources),
        }
        self.stream = DocumentStream(
            panels, NodesPanel(sources, rows, devices), sources.clock, viewers, sources.scheduler.context.suspension
        )
        self.work = WorkReader(sources)
        self._rows = rows
        self._devices = devices
        self._room = RoomReader(sources, rows)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks."""
        for name, work in (("page: documents", self.stream.run), ("page: rates", self._sample)):
            self._tasks.append(asyncio.create_task(_restarted(name, work), name=name))

    async def stop(self) -> None:
        """End the streams and the tasks."""
        self.stream.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def read_work(self, namespace: str, name: str, *, is_gang: bool, source: GroupSource | None) -> Work | None:
        """Return one pod or gang; None if it does not exist.

        Raises:
            SchedulerCoreError: It cannot be explained.
        """
        return self.work.gang(namespace, name, source) if is_gang else self.work.pod(namespace, name)

    async def update_nodes(self) -> None:
        """Bring the layout of the nodes up to date, which :meth:`read_room` needs."""
        turns = Turns(self._sources.clock, suspension=self._sources.scheduler.context.suspension)
        await turns.readable()
        turns.begin()
        await self._rows.update(turns)

    def read_room(self, query: RoomQuery) -> Room:
        """Return the room for copies of a pod.

        Raises:
            RoomError: The query cannot be answered.
            SchedulerCoreError: The pod cannot be compiled.
        """
        return self._room.read(query)

    async def read_node(self, name: str) -> NodeCard | None:
        """Return one node; None if it does not exist."""
        turns = Turns(self._sources.clock, suspension=self._sources.scheduler.context.suspension)
        await turns.readable()
        turns.begin()
        devices = await self._devices.by_node(turns)
        return read_node(self._sources, name, devices)

    async def read_report(self) -> ReportDocuments:
        """Return all documents for a report; they are built for it, with more dry runs than those of the stream."""
        return await operator_documents(self._sources, self._rates)

    async def _sample(self) -> None:
        while True:
            await self._sources.clock.sleep(INTERVAL_SECONDS)
            self._rates.sample()


async def _restarted(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a task until cancelled; an error is logged and must not end the scheduler."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("%s failed unexpectedly and starts again; please report this bug", name)
        await asyncio.sleep(_RESTART_SECONDS)
