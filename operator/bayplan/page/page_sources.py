"""What the documents of the page are built from, and the budget of the event loop that they use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.introspection.status_model import ProfileState
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.kube.watches.informer import Informer
from bayplan.kube.writes.api_dispatcher import WriteMetrics
from bayplan.profiles.profile_status import ProfileReading
from bayplan.reservations.reservation_list import ListedReservation
from bayplan.resources.rebalance_plan import RebalancePlan
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

TURN_SECONDS = 0.004
"""Time for which the page holds the event loop before other tasks run."""


def _explain(namespace: str, name: str) -> str:
    return f"bayplan explain -n {namespace} {name}"


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands that print the same as the documents.

    Attributes:
        explain: Returns the command for a pod or ``podgroup/NAME`` by namespace and name; "" if there is none.
    """

    status: str = "bayplan status"
    queue: str = "bayplan status --all"
    nodes: str = "kubectl describe nodes"
    explain: Callable[[str, str], str] = _explain
    reservations: str = "bayplan reserve"

    @classmethod
    def of_simulation(cls, simulate: str, explain: Callable[[str, str], str] = lambda *_: "") -> Commands:
        """Return the commands for the documents of a simulation, which another process cannot print."""
        return cls(simulate, simulate, simulate, explain)


@dataclass(frozen=True, slots=True)
class PageSources:
    """Parts of the operator that the page shows.

    Attributes:
        started: Time of the clock when the process started.
        attempts: The last attempts of pods and gangs.
        writes: Durations of API calls.
        find_pod: Returns a pod by ``namespace/name``; None if it does not exist.
        explain_pod: Explains a pod by namespace and name; None if it does not exist.
        explain_gang: Explains a gang by namespace, name and API (None for any); None if it does not exist.
        profile_states: Returns the live profiles with the lengths of their queues.
        profile_readings: Returns the SchedulerProfiles with their conditions and revisions; None with ``--config``.
        server: Returns the version of the API server.
        informers: Informers by plural of the resource; none in a simulation.
        reservations: Returns the NodeReservations; None if they are not read.
        plans: Returns the RebalancePlans with their last statuses; None if this process makes none.
    """

    scheduler: Scheduler
    readiness: Readiness
    clock: Clock
    started: float
    attempts: AttemptHistory
    writes: WriteMetrics
    find_pod: Callable[[str], Pod | None]
    explain_pod: Callable[[str, str], Explanation | None]
    explain_gang: Callable[[str, str, GroupSource | None], GangExplanation | None]
    profile_states: Callable[[], tuple[ProfileState, ...]]
    profile_readings: Callable[[], Iterable[ProfileReading] | None]
    server: Callable[[], ServerSupport]
    commands: Commands = Commands()
    informers: Mapping[str, Informer[Any]] = field(default_factory=dict)
    reservations: Callable[[], Iterable[ListedReservation]] | None = None
    plans: Callable[[], Iterable[RebalancePlan]] | None = None


class Turns:
    """Bounds the time for which the page holds the event loop.

    Args:
        suspension: Suspension of cycles; no turn begins while a cycle is midway. None if no scheduler runs.

    Attributes:
        spent: Seconds that the page has used, without the pauses.
    """

    def __init__(self, clock: Clock, seconds: float = TURN_SECONDS, suspension: Suspension | None = None) -> None:
        self._clock = clock
        self._suspension = suspension
        self._seconds = seconds
        self._began = 0.0
        self.spent = 0.0
        self.longest = 0.0

    def begin(self) -> None:
        """Begin the first turn of a document."""
        self._began = self._clock.now()

    def end(self) -> None:
        """End the last turn of a document."""
        seconds = self._clock.now() - self._began
        self.spent += seconds
        self.longest = max(self.longest, seconds)

    async def pause_if_due(self) -> None:
        """Let other tasks run if the turn is over; what was read before may have changed afterwards."""
        if self._clock.now() - self._began >= self._seconds:
            await self.pause()

    async def pause(self) -> None:
        """Let other tasks run, and begin the next turn."""
        self.end()
        await self._clock.sleep(0)
        await self.readable()
        self.begin()

    async def readable(self) -> None:
        """Wait until columns can be read."""
        if self._suspension is not None:
            await self._suspension.readable()


class Panel(ABC):
    """Document that the page shows, built at most once in ``interval`` seconds."""

    interval = 2.0

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources

    @abstractmethod
    async def build(self, turns: Turns) -> Struct:
        """Return the current document."""

    def without_ages(self, document: Any) -> Struct:
        """Return what is compared to decide whether the document changed: the document without elapsed times."""
        found: Struct = document
        return found
