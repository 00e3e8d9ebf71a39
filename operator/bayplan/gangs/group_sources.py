"""Every source of PodGroups, and what the first cycle needs of them.

A source is known when its first list is complete. Until then the core holds back the pods that name one of its groups,
and no others: the first cycle waits a moment for the sources, so that gangs take their turn, and not until they answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from typing import Any

from bayplan.cluster_informers import ClusterInformers, FeedSink
from bayplan.gangs.bayplan_groups import BayplanGroups
from bayplan.gangs.handed_groups import GroupObserver
from bayplan.gangs.served_groups import NATIVE_API, SCHEDULER_PLUGINS_API, ServedGroups
from bayplan.kube.connection import ApiConnection
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.priority_class import PriorityClass
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
"""The collection by which groups of Bayplan's own API get their priority."""

SETTLE_SECONDS = 5.0
"""How long the first cycle waits for sources; a healthy API server answers within milliseconds."""

_WITHOUT_RESOURCES = (
    "`bayplan run --config` reads no custom resources, PodGroups of bayplan.dev among them; use SchedulerProfiles, or "
    "PodGroups of scheduling.k8s.io or scheduling.x-k8s.io"
)


class GroupSources:
    """PodGroups of all APIs.

    Args:
        scheduler: Its feed takes the groups.
        informers: All others, none of which runs yet.
        connection: To the API server.
        clock: Time.
        others: Whether PodGroups of scheduler-plugins and of Kubernetes itself count, where they are served.

    Attributes:
        bayplan: Bayplan's own groups, which the watcher of custom resources reports; without :meth:`use_bayplan`
            pods that name one are held back.
        served: The others, each as far as its API is served.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        informers: ClusterInformers,
        connection: ApiConnection,
        clock: Clock,
        *,
        others: bool = True,
    ) -> None:
        self._informers = informers
        feed = scheduler.group_feed
        feed.withhold(GroupSource.BAYPLAN, _WITHOUT_RESOURCES)
        self.bayplan = BayplanGroups(feed)
        self.served: tuple[ServedGroups[Any], ...] = ()
        if others:
            self.served = (
                ServedGroups(NATIVE_API, connection, informers, feed, clock),
                ServedGroups(SCHEDULER_PLUGINS_API, connection, informers, feed, clock),
            )
        else:
            for source in (NATIVE_API.source, SCHEDULER_PLUGINS_API.source):
                scheduler.context.queue.gangs.ignore(source)

    def use_bayplan(self) -> None:
        """Let groups of Bayplan's own API count, before anything runs: the process uses custom resources."""
        groups = self.bayplan
        groups.unlisted("the PodGroups of bayplan.dev have not been listed yet")
        sink = FeedSink(groups.class_added, groups.class_updated, groups.class_deleted)
        self._informers.watch(PRIORITY_CLASSES, PriorityClass, sink)

    def observe(self, observer: GroupObserver) -> None:
        """Have an observer told of the objects of every source, before anything runs."""
        for observers in (self.bayplan.observers, *(groups.observers for groups in self.served)):
            observers.append(observer)

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What has to run for the other APIs until cancelled, by the resource's name."""
        return {groups.resource: groups.run() for groups in self.served}

    async def settle(self) -> None:
        """Wait until every other source is known or it is known why not, at most :data:`SETTLE_SECONDS`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                for groups in self.served:
                    await groups.settled.wait()

    def status(self, key: GroupKey) -> Mapping[str, Any] | None:
        """The status of an object as it was last shown; None for an object that is not known."""
        if key.source is GroupSource.BAYPLAN:
            body = self.bayplan.body(key)
            return None if body is None else body.get("status") or {}
        shown = self._of(key.source).shown(key)
        return None if shown is None else shown.status

    def version(self, source: GroupSource) -> str:
        """The version of another API that is read; empty while it is not served."""
        return self._of(source).version

    def _of(self, source: GroupSource) -> ServedGroups[Any]:
        return next(groups for groups in self.served if groups.source is source)
