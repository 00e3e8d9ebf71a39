"""All documents of the page, and the tasks that keep them current and send the changes to all viewers.

Each document is built once for all viewers, while there are viewers, not more often than its interval, and so rarely
that it uses at most one percent of a core. A viewer that reads slowly receives only the newest document of each panel::

    panel ──build──▶ document ──changed?──▶ event ──▶ viewer: one waiting event for each panel ──▶ connection
               └──raises──▶ failure ─────────▶ event ──▶ viewer, which shows the document before as stale
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from bayplan.kube.timing import wait_at_most
from bayplan.page.node_map import DeviceCounts, MapState, NodeCard, NodeRows, NodesPanel, delta, read_node, whole
from bayplan.page.overview import OverviewPanel, WatchesPanel
from bayplan.page.page_sources import PageSources, Panel, Turns
from bayplan.page.pending_work import GangsPanel, PendingPanel
from bayplan.page.rates import INTERVAL_SECONDS, RatesPanel
from bayplan.page.report_documents import ReportDocuments, Work, WorkReader, operator_documents
from bayplan.page.resource_panels import PlansPanel, ProfilesPanel, ReservationsPanel
from bayplan.page.room import Room, RoomQuery, RoomReader
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import error_message
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.ports import Clock

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
        devices, rows = DeviceCounts(columns.devices, sources.clock), NodeRows(columns)
        self._sources = sources
        self._rates = rates = RatesPanel(sources)
        gangs = GangsPanel(sources)
        panels: dict[str, Panel] = {
            "overview": OverviewPanel(sources, gangs, rates, devices),
            "pending": PendingPanel(sources),
            "gangs": gangs,
            "reservations": ReservationsPanel(sources),
            "profiles": ProfilesPanel(sources),
            "plans": PlansPanel(sources),
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
        for name, work in (("page: documents", self.stream.run), ("page: rates", self._sample)):
            self._tasks.append(asyncio.create_task(_restarted(name, work), name=name))

    async def stop(self) -> None:
        """End the streams and the tasks."""
        self.stream.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def read_work(self, namespace: str, name: str, *, is_gang: bool, source: GroupSource | None) -> Work | None:
        """Return one pod or gang, None if there is none; raises SchedulerCoreError if it cannot be explained."""
        return self.work.gang(namespace, name, source) if is_gang else self.work.pod(namespace, name)

    async def update_nodes(self) -> None:
        """Bring the layout of the nodes up to date, which :meth:`read_room` needs."""
        await self._rows.update(await self._turns())

    def read_room(self, query: RoomQuery) -> Room:
        """Return the room for copies of a pod.

        Raises:
            RoomError: The query cannot be answered.
            SchedulerCoreError: The pod cannot be compiled.
        """
        return self._room.read(query)

    async def read_node(self, name: str) -> NodeCard | None:
        """Return one node; None if it does not exist."""
        return read_node(self._sources, name, await self._devices.by_node(await self._turns()))

    async def read_report(self) -> ReportDocuments:
        """Return all documents for a report; they are built for it, with more dry runs than those of the stream."""
        return await operator_documents(self._sources, self._rates)

    async def _turns(self) -> Turns:
        turns = Turns(self._sources.clock, suspension=self._sources.scheduler.context.suspension)
        await turns.readable()
        turns.begin()
        return turns

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
            # The page only shows state; scheduling continues without it.
            log.exception("%s failed unexpectedly and starts again; please report this bug", name)
        await asyncio.sleep(_RESTART_SECONDS)


NODES, NODES_DELTA, FAILURE = "nodes", "nodesDelta", "failure"
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = b": keep-alive\n\n"
_COST_FACTOR = 100.0
"""A document is built again after this many times the time that the last build took."""
_FAILED_SECONDS = 10.0


class ViewersLimitError(Exception):
    """As many viewers as allowed read the stream."""


class PanelFailure(Struct, frozen=True, rename="camel"):
    """Document of the event that a panel cannot be built; the next document of the panel ends the failure."""

    panel: str
    error: str


class _Built(NamedTuple):
    """A document with its time, and what is compared."""

    at: float
    document: Struct | MapState
    compared: object


class Viewer:
    """Reader of the stream.

    Attributes:
        starts: Panels whose whole document it has not received yet.
        failed: Panels of which it received a failure after their last document.
    """

    def __init__(self, panels: Iterable[str], clock: Clock) -> None:
        self.panels = frozenset(panels)
        self.starts = set(self.panels)
        self.failed: set[str] = set()
        self._clock = clock
        self._waiting: dict[str, bytes] = {}
        self._wake = asyncio.Event()
        self._is_closed = False

    def put(self, panel: str, event: bytes) -> None:
        """Add an event; it replaces one of the same panel that was not read yet."""
        self._waiting[panel] = event
        self.starts.discard(panel)
        self.failed.discard(panel)
        self._waiting.pop(_failure_of(panel), None)
        self._wake.set()

    def put_failure(self, panel: str, event: bytes) -> None:
        """Add the event that a panel cannot be built."""
        self._waiting[_failure_of(panel)] = event
        self.failed.add(panel)
        self._wake.set()

    def has_unread(self, panel: str) -> bool:
        return panel in self._waiting

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()

    async def events(self, look_seconds: float) -> AsyncIterator[bytes]:
        """Yield events as bytes, keep-alive comments, and b"" at least every ``look_seconds``, until closed."""
        last = self._clock.now()
        while not self._is_closed:
            if not self._waiting:
                await wait_at_most(self._wake, look_seconds)
            self._wake.clear()
            events, self._waiting = b"".join(self._waiting.values()), {}
            now = self._clock.now()
            if not events and now - last >= KEEP_ALIVE_SECONDS:
                events = KEEP_ALIVE
            if events:
                last = now
            yield events


class DocumentStream:
    """The documents and their viewers.

    Args:
        suspension: Suspension of cycles, during which columns may be hypothetical.

    Attributes:
        turns: Time that the documents have used.
        builds: Number of built documents by panel.
        refused: Number of viewers that were rejected because there were too many.
        sent_bytes: Bytes of documents and events that were sent, without static files.
    """

    def __init__(
        self, panels: Mapping[str, Panel], nodes: NodesPanel, clock: Clock, limit: int, suspension: Suspension
    ) -> None:
        self.limit = limit
        self.turns = Turns(clock, suspension=suspension)
        self.refused = 0
        self.sent_bytes = 0
        self._panels: dict[str, Any] = {**panels, NODES: nodes}
        self.builds = dict.fromkeys(self._panels, 0)
        self._nodes = nodes
        self._clock = clock
        self._viewers: list[Viewer] = []
        self._built: dict[str, _Built] = {}
        self._due: dict[str, float] = dict.fromkeys(self._panels, float("-inf"))
        self._building = asyncio.Lock()
        self._joined = asyncio.Event()
        self._failures: dict[str, str] = {}
        self._logged: dict[str, str] = {}
        self._events = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._panels)

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    # -- viewers ------------------------------------------------------------------------------------------------

    def join(self, panels: Iterable[str]) -> Viewer:
        """Add a viewer, which receives whole documents first; raises ViewersLimitError if there are too many."""
        if len(self._viewers) >= self.limit:
            self.refused += 1
            raise ViewersLimitError
        viewer = Viewer(panels, self._clock)
        self._viewers.append(viewer)
        self._joined.set()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        self._viewers.remove(viewer)

    def close(self) -> None:
        for viewer in self._viewers:
            viewer.close()

    # -- documents ----------------------------------------------------------------------------------------------

    async def document(self, panel: str) -> bytes:
        """Return the current document of a panel as JSON; it is built if the last one is older than its interval."""
        built = self._built.get(panel)
        if built is None or self._clock.now() >= self._due[panel]:
            await self._refresh(panel)
            built = self._built[panel]
        return msgspec.json.encode(self._whole(built))

    async def run(self) -> None:
        """Build the documents of the panels that viewers show, until cancelled."""
        while True:
            self._joined.clear()
            if not self._viewers:
                await self._joined.wait()
                continue
            wait = await self.refresh()
            if wait > 0:
                await wait_at_most(self._joined, wait)

    async def refresh(self) -> float:
        """Build the documents that viewers show and that are due; return the seconds until the next one is due."""
        wanted = frozenset[str]().union(*(viewer.panels for viewer in self._viewers))
        self._start_viewers()
        for panel in [name for name in self._panels if name in wanted and self._due[name] <= self._clock.now()]:
            await self._refresh_or_log(panel)
        self._start_viewers()
        return min((self._due[panel] for panel in wanted), default=float("inf")) - self._clock.now()

    def _start_viewers(self) -> None:
        """Send the whole documents that viewers have not received yet, unless they are due to be built again."""
        now = self._clock.now()
        for panel, built in self._built.items():
            new = [viewer for viewer in self._viewers if panel in viewer.starts]
            if new and now < self._due[panel]:
                event = self._event(panel, self._whole(built))
                for viewer in new:
                    viewer.put(panel, event)
        for panel, error in self._failures.items():
            unaware = [viewer for viewer in self._viewers if panel in viewer.panels and panel not in viewer.failed]
            for viewer in unaware:
                viewer.put_failure(panel, self._event(FAILURE, PanelFailure(panel, error)))

    async def _refresh_or_log(self, panel: str) -> None:
        try:
            await self._refresh(panel)
        except Exception as error:
            # The page must not end the scheduler; each error is logged once.
            if self._logged.get(panel) != repr(error):
                log.exception("the panel %s of the page cannot be built; please report this bug", panel)
            self._logged[panel] = repr(error)
            self._failures[panel] = error_message(error)
            self._due[panel] = self._clock.now() + _FAILED_SECONDS

    async def _refresh(self, panel: str) -> None:
        async with self._building:
            if panel in self._built and self._clock.now() < self._due[panel]:
                return  # another request has built it meanwhile
            began = self.turns.spent
            await self.turns.readable()
            self.turns.begin()
            try:
                document, compared = await self._build(panel)
                self.builds[panel] += 1
                self._failures.pop(panel, None)
                self._pass_on(panel, self._built.get(panel), document, compared)
            finally:
                self.turns.end()
            cost = self.turns.spent - began
            self._due[panel] = self._clock.now() + max(self._panels[panel].interval, cost * _COST_FACTOR)

    async def _build(self, panel: str) -> tuple[Struct | MapState, object]:
        if panel == NODES:
            state = await self._nodes.read(self.turns)
            return state, state
        shown: Panel = self._panels[panel]
        document = await shown.build(self.turns)
        return document, shown.without_ages(document)

    def _pass_on(self, panel: str, before: _Built | None, document: Struct | MapState, compared: object) -> None:
        self._built[panel] = built = _Built(self._clock.now(), document, compared)
        viewers = [viewer for viewer in self._viewers if panel in viewer.panels and panel not in viewer.starts]
        if before is None or not viewers:
            return
        recovered = [viewer for viewer in viewers if panel in viewer.failed]
        if recovered:
            # Also an unchanged document: it ends the failure.
            event = self._event(panel, self._whole(built))
            for viewer in recovered:
                viewer.put(panel, event)
            viewers = [viewer for viewer in viewers if viewer not in recovered]
        if panel == NODES:
            self._pass_on_nodes(before, built, viewers)
        elif before.compared != compared:
            event = self._event(panel, self._whole(built))
            for viewer in viewers:
                viewer.put(panel, event)

    def _pass_on_nodes(self, before: _Built, built: _Built, viewers: list[Viewer]) -> None:
        old, new = before.document, built.document
        assert isinstance(old, MapState)
        assert isinstance(new, MapState)
        is_same_layout = old.version == new.version
        changes = delta(old, new) if is_same_layout else None
        if is_same_layout and changes is None:
            return
        complete = changed = b""
        for viewer in viewers:
            # Changes apply to the document before, which a slow viewer has not read.
            if changes is None or viewer.has_unread(NODES):
                complete = complete or self._event(NODES, whole(new))
                viewer.put(NODES, complete)
            else:
                changed = changed or self._event(NODES_DELTA, changes)
                viewer.put(NODES, changed)

    def _whole(self, built: _Built) -> Struct:
        return whole(built.document) if isinstance(built.document, MapState) else built.document

    def _event(self, name: str, document: Struct) -> bytes:
        self._events += 1
        return b"event: %b\nid: %d\ndata: %b\n\n" % (name.encode(), self._events, msgspec.json.encode(document))


def _failure_of(panel: str) -> str:
    """Return the key of a waiting failure; no panel has such a name."""
    return f"{panel} {FAILURE}"
