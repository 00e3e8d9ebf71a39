"""Documents of the web page for a scheduler without an operator."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.explanation.building import explain_gang, explain_pod, named_gang
from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.gangs.group_sources import GangAttempts
from bayplan.introspection.status_building import profile_states
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import ServerSupport
from bayplan.kube.writes.api_dispatcher import WriteMetrics
from bayplan.page.page_sources import PageSources, Turns
from bayplan.profiles.profile_status import ProfileReading

from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupSource
from scheduler_core.scheduler import SchedulerPorts
from tests.support.scheduling import Rig, default_rig
from tests.support.virtual_clock import VirtualClock


class PageWorld:
    """Scheduler and the sources of its page.

    Args:
        readings: Readings of SchedulerProfiles; None for profiles of a file.

    Attributes:
        sources: Sources of the documents.
        turns: Time budget of the documents.
        pods: Pods that the test added, by ``namespace/name``.
    """

    def __init__(self, readings: Iterable[ProfileReading] | None = None) -> None:
        self.history = AttemptHistory()
        self.clock = VirtualClock()
        ports = SchedulerPorts(attempts=self.history)
        self.rig: Rig = default_rig(ports=ports, clock=self.clock)
        self.pods: dict[str, Pod] = {}
        scheduler = self.rig.scheduler
        for source in POD_GROUP_SOURCES:
            scheduler.group_feed.serve(source)
        GangAttempts(scheduler.context.queue.gangs, self.history, self.clock)
        self.sources = PageSources(
            scheduler=scheduler,
            readiness=Readiness(()),
            clock=self.clock,
            started=self.clock.now(),
            attempts=self.history,
            writes=WriteMetrics(self.clock),
            find_pod=self.pods.get,
            explain_pod=self._explain_pod,
            explain_gang=self._explain_gang,
            profile_states=lambda: profile_states(scheduler.context, lambda _: ()),
            profile_readings=lambda: readings,
            server=lambda: ServerSupport("v1.37.1"),
        )
        self.turns = Turns(self.clock)
        self.turns.begin()

    def add(self, *pods: Pod) -> None:
        """Report pods as added."""
        for each in pods:
            self.pods[each.key] = each
            self.rig.add(each)

    def _explain_pod(self, namespace: str, name: str) -> Explanation | None:
        pod = self.pods.get(f"{namespace}/{name}")
        return None if pod is None else explain_pod(self.rig.scheduler, pod)

    def _explain_gang(self, namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
        gang = named_gang(self.rig.context, namespace, name, source)
        return None if gang is None else explain_gang(self.rig.scheduler, gang)
