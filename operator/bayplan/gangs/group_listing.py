"""Lists the PodGroups of all three APIs once, for commands.

The running operator watches instead; see :mod:`bayplan.gangs.group_sources`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayplan.gangs.accepted_groups import GroupSink
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.gangs.group_api_discovery import (
    NATIVE_API,
    SCHEDULER_PLUGINS_API,
    GroupApi,
    find_versions,
    why_absent,
    why_refused,
)
from bayplan.gangs.group_sources import PRIORITY_CLASSES
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.informer import list_objects
from bayplan.resources.pod_group import PodGroup
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, Problem
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.workloads import PriorityClass

_PLURAL = PodGroup.definition.plural


async def list_groups(connection: ApiConnection, sink: GroupSink) -> list[str]:
    """List PodGroups; pods that name one of an API that cannot be read are gated.

    Returns:
        Notices about what could not be read.
    """
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
