"""Every source of PodGroups, and what the first cycle needs of them.

Owns the list of sources and how they join the other informers. Must not know the fields of any. Why members that have
ended are told again when a source begins to count: the core keeps none that it does not count for something, and one
that succeeded fills a place of its gang.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from bayplan.cluster_informers import ClusterInformers, FeedSink
from bayplan.gangs.bayplan_groups import BayplanGroups
from bayplan.gangs.handed_groups import GroupObserver
from bayplan.gangs.served_groups import NATIVE_API, SCHEDULER_PLUGINS_API, ServedGroups
from bayplan.kube.connection import ApiConnection
from scheduler_core.model.pod_group import GroupKey, GroupSource, group_key_of
from scheduler_core.model.priority_class import PriorityClass
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
"""The collection by which groups of Bayplan's own API get their priority."""


class GroupSources:
    """PodGroups of all APIs.

    Args:
        scheduler: Its feed takes the groups.
        informers: All others, none of which runs yet.
        connection: To the API server.
        clock: Time.
        others: Whether PodGroups of scheduler-plugins and of Kubernetes itself count, where they are served.

    Attributes:
        bayplan: Bayplan's own groups, which whoever watches custom resources tells of; they count once
            :meth:`use_bayplan` has been called.
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
        self._scheduler = scheduler
        self._informers = informers
        feed = scheduler.group_feed
        self.bayplan = BayplanGroups(feed)
        self.served: tuple[ServedGroups[Any], ...] = ()
        if others:
            self.served = (
                ServedGroups(NATIVE_API, connection, informers, feed, clock),
                ServedGroups(SCHEDULER_PLUGINS_API, connection, informers, feed, clock),
            )
        for groups in self.served:
            groups.on_served.append(self._tell_ended_members)

    def use_bayplan(self) -> None:
        """Let groups of Bayplan's own API count, before anything runs: the process uses custom resources."""
        self.bayplan.serve()
        groups = self.bayplan
        sink = FeedSink(groups.class_added, groups.class_updated, groups.class_deleted)
        self._informers.watch(PRIORITY_CLASSES, PriorityClass, sink)

    def observe(self, observer: GroupObserver) -> None:
        """Have an observer told of the objects of every source, before anything runs."""
        for observers in (self.bayplan.observers, *(groups.observers for groups in self.served)):
            observers.append(observer)

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What has to run for the other APIs until cancelled, by the resource's name."""
        return {groups.resource: groups.run() for groups in self.served}

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

    def _tell_ended_members(self, source: GroupSource) -> None:
        for pod in self._informers.pods.known.values():
            if pod.is_terminal and group_key_of(pod, (source,)) is not None:
                self._scheduler.feed.pod_updated(pod, pod)
