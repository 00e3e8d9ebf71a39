"""All sources of PodGroups, and how long the first scheduling cycle waits for them.

A source is ready when its first list is complete. Until then the core gates the pods that name one of its groups, and
no others: the first cycle waits a few seconds for the sources, so that gangs take their turn, but does not depend on
them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from bayplan.gangs.bayplan_group_source import BayplanGroups, GroupObserver, GroupSink
from bayplan.gangs.discovered_group_source import (
    COMPOSITE_API,
    NATIVE_API,
    SCHEDULER_PLUGINS_API,
    GroupApi,
    ServedGroups,
    find_versions,
    native_api,
    volcano_api,
    why_absent,
    why_refused,
)
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from bayplan.kube.watches.informer import list_objects
from bayplan.resources.pod_group import PodGroup
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, Problem
from scheduler_core.metrics.attempt_reports import AttemptHistory, EndedAttempt
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.workloads import PriorityClass
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.scheduler import Scheduler

PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
"""Path of the PriorityClasses, from which groups of Bayplan's own API get their priority."""


def priority_class_manifest(given: PriorityClass) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **msgspec.to_builtins(given)}


async def priority_class_manifests(connection: ApiConnection) -> list[dict[str, Any]]:
    classes, _ = await list_objects(connection, PRIORITY_CLASSES, PriorityClass)
    return [priority_class_manifest(each) for each in classes]


async def watched_priority_classes(informers: ClusterInformers, connection: ApiConnection) -> list[dict[str, Any]]:
    """Return the PriorityClasses from their watch, or from a list if they are not watched or the watch is stale."""
    # A list takes longer than the dry run of a pod.
    informer = informers.by_resource.get("priorityclasses")
    if informer is None or not informer.synced or informer.staleness or informer.unreadable:
        return await priority_class_manifests(connection)
    return [priority_class_manifest(each) for each in informer.known.values()]


SETTLE_SECONDS = 5.0
"""Maximum time the first cycle waits for sources; a healthy API server responds within milliseconds."""

_WITHOUT_RESOURCES = (
    "`bayplan run --config` reads no custom resources such as PodGroups of bayplan.dev; use SchedulerProfiles, or "
    "PodGroups of scheduling.k8s.io or scheduling.x-k8s.io"
)


class UsedApis(Struct, frozen=True):
    """The APIs whose PodGroups are used.

    Attributes:
        bayplan: Bayplan's own; if not, because the process reads no custom resources, pods that name one are gated.
        others: Those of scheduler-plugins and of Kubernetes, if they are served; if not, pods ignore them.
        trees: Whether CompositePodGroups are read too; if not, pods of PodGroups below one are gated.
        claims: Whether PodGroups of Kubernetes may have resource claims; if not, pods of such groups are gated.
        volcano: Whether PodGroups of Volcano are read; if not, pods ignore them.
    """

    bayplan: bool = True
    others: bool = True
    trees: bool = False
    claims: bool = False
    volcano: bool = False


class GroupSources:
    """PodGroups of all APIs."""

    def __init__(
        self,
        scheduler: Scheduler,
        informers: ClusterInformers,
        connection: ApiConnection,
        clock: Clock,
        *,
        apis: UsedApis | None = None,
        observer: GroupObserver | None = None,
    ) -> None:
        apis = apis or UsedApis()
        feed = scheduler.group_feed
        columns = scheduler.context.cache.columns
        self.bayplan = groups = BayplanGroups(feed, observer, columns.labels_of_nodes)
        if apis.bayplan:
            groups.unlisted("the PodGroups of bayplan.dev have not been listed yet")
        else:
            groups.unlisted(_WITHOUT_RESOURCES)
        if apis.bayplan or apis.volcano:
            informers.watch(PRIORITY_CLASSES, PriorityClass, self._classes())
        self.served: tuple[ServedGroups[Any], ...] = ()
        if apis.others:
            native = native_api(are_trees_read=apis.trees, are_claims_read=apis.claims)
            # kube-scheduler writes no status of CompositePodGroups either: results are reported on the PodGroups.
            trees = (ServedGroups(COMPOSITE_API, connection, informers, feed, clock),) if apis.trees else ()
            self.served = (
                *trees,
                ServedGroups(native, connection, informers, feed, clock, observer=observer),
                ServedGroups(SCHEDULER_PLUGINS_API, connection, informers, feed, clock, observer=observer),
            )
        else:
            for source in (GroupSource.NATIVE, GroupSource.SCHEDULER_PLUGINS):
                feed.ignore(source)
        if apis.volcano:
            volcano = volcano_api(groups.priority_of)
            self.served += (ServedGroups(volcano, connection, informers, feed, clock, observer=observer),)

    def _classes(self) -> FeedSink[PriorityClass]:
        groups = self.bayplan

        def added(new: PriorityClass) -> None:
            groups.class_added(new)
            self._translate_volcano()

        def updated(old: PriorityClass, new: PriorityClass) -> None:
            groups.class_updated(old, new)
            if old.value != new.value:
                self._translate_volcano()

        def deleted(old: PriorityClass) -> None:
            groups.class_deleted(old)
            self._translate_volcano()

        return FeedSink(added, updated, deleted)

    def _translate_volcano(self) -> None:
        for each in self.served:
            if each.source is GroupSource.VOLCANO:
                each.translate_again()

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the watches of the other APIs, which run until cancelled, by name of the resource."""
        return {groups.resource: groups.run() for groups in self.served}

    async def settle(self) -> None:
        """Wait until every other source is listed or known to be unavailable, at most :data:`SETTLE_SECONDS`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                for groups in self.served:
                    await groups.settled.wait()

    def status(self, key: GroupKey) -> Mapping[str, Any] | None:
        """Return the status of an object as last received; None for an unknown object."""
        if key.source is GroupSource.BAYPLAN:
            body = self.bayplan.body(key)
            return None if body is None else body.get("status") or {}
        latest = self._of(key.source).latest(key)
        return None if latest is None else latest.status

    def versions(self) -> tuple[str, ...]:
        """Return the resources of other APIs that are read, each with its version."""
        return tuple(f"{groups.resource}/{groups.version}" for groups in self.served if groups.version)

    def _of(self, source: GroupSource) -> ServedGroups[Any]:
        return next(groups for groups in self.served if groups.source is source)


_PLURAL = PodGroup.definition.plural


async def list_groups(connection: ApiConnection, sink: GroupSink) -> list[str]:
    """List PodGroups, and return notices; pods that name one of an API that cannot be read are gated."""
    notices: list[str] = []
    await _bayplan(connection, sink, notices)
    for api in (NATIVE_API, SCHEDULER_PLUGINS_API):
        await _served(connection, api, sink, notices)
    return notices


async def _bayplan(connection: ApiConnection, sink: GroupSink, notices: list[str]) -> None:
    try:
        bodies, version = await CustomResources(connection).list(_PLURAL)
    except NotFoundError:
        sink.withhold(GroupSource.BAYPLAN, "Bayplan's CustomResourceDefinitions are not installed; apply them")
        return
    except ClusterWriteError as error:
        _withhold(sink, GroupSource.BAYPLAN, f"the PodGroups of bayplan.dev cannot be listed: {error}", notices)
        return
    groups = BayplanGroups(sink)
    try:
        classes, _ = await list_objects(connection, PRIORITY_CLASSES, PriorityClass)
    except (ForbiddenError, NotFoundError) as error:
        classes = []
        notices.append(
            f"PriorityClasses cannot be listed, so a PodGroup gets the highest priority of its members: {error}"
        )
    for each in classes:
        groups.class_added(each)
    groups.listed(PodGroup, bodies, version)
    for key, problems in groups.problems.items():
        notices.append(_invalid(f"{key} of bayplan.dev", problems))


async def _served(connection: ApiConnection, api: GroupApi[Any], sink: GroupSink, notices: list[str]) -> None:
    group = api.source.value
    try:
        found = await find_versions(connection, api)
    except ClusterWriteError as error:
        _withhold(sink, api.source, why_refused(api, error), notices)
        return
    if not found.read:
        sink.withhold(api.source, why_absent(api, found))
        return
    try:
        objects, unreadable = await list_objects(connection, f"/apis/{group}/{found.read}/{_PLURAL}", api.kind)
    except ClusterWriteError as error:
        _withhold(sink, api.source, f"the PodGroups of {group} cannot be listed: {error}", notices)
        return
    sink.serve(api.source)
    if unreadable:
        notices.append(f"{unreadable} PodGroups of {group} cannot be decoded and are ignored")
    for each in objects:
        try:
            sink.group_changed(api.translations[found.read](each))
        except ConfigError as error:
            sink.group_refused(GroupKey(api.source, each.metadata.namespace, each.metadata.name), error.problems)
            notices.append(_invalid(f"{each.metadata.namespace}/{each.metadata.name} of {group}", error.problems))


def _withhold(sink: GroupSink, source: GroupSource, reason: str, notices: list[str]) -> None:
    sink.withhold(source, reason)
    notices.append(f"pods that name a PodGroup of {source.value} are shown as gated: {reason}")


def _invalid(what: str, problems: Iterable[Problem]) -> str:
    return f"PodGroup {what} is invalid and ignored: {'; '.join(map(str, problems))}"


class GangAttempts:
    """Adds the attempts of gangs to the history."""

    def __init__(self, gangs: Gangs, history: AttemptHistory, clock: Clock) -> None:
        self._gangs = gangs
        self._history = history
        self._clock = clock
        self._seen: dict[GroupKey, GangOutcome] = {}
        gangs.on_change.append(self._changed)

    def _changed(self, gang: Gang) -> None:
        outcome = gang.outcome
        if outcome is None or self._gangs.get(gang.key) is not gang:
            self._seen.pop(gang.key, None)
            return
        if self._seen.get(gang.key) is outcome:
            return
        # Each attempt sets a new outcome.
        self._seen[gang.key] = outcome
        profile = next((pod.spec.scheduler_name for pod in gang.pods.values()), "")
        message = "" if outcome.is_scheduled else outcome.message
        self._history.add(gang.key, EndedAttempt(self._clock.now(), profile, outcome.reason, "", message))
