"""PodGroups of all three APIs, listed once.

Owns how a list of each API reaches the core. Must not watch anything: this is for commands that look once and end; the
operator's sources are in :mod:`bayplan.gangs.group_sources`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayplan.gangs.bayplan_groups import BayplanGroups
from bayplan.gangs.group_sources import PRIORITY_CLASSES
from bayplan.gangs.handed_groups import GroupTaker
from bayplan.gangs.served_groups import (
    NATIVE_API,
    SCHEDULER_PLUGINS_API,
    GroupApi,
    find_versions,
    why_absent,
    why_refused,
)
from bayplan.kube.connection import ApiConnection
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.object_lists import list_objects
from bayplan.resources.pod_group import PodGroup
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, Problem
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.model.priority_class import PriorityClass

_PLURAL = PodGroup.definition.plural


async def list_groups(connection: ApiConnection, taker: GroupTaker) -> list[str]:
    """List PodGroups; pods that name one of an API that cannot be read are held back.

    Args:
        connection: To the API server.
        taker: Is told of the groups.

    Returns:
        What could not be read, in sentences.
    """
    notices: list[str] = []
    await _bayplan(connection, taker, notices)
    for api in (NATIVE_API, SCHEDULER_PLUGINS_API):
        await _served(connection, api, taker, notices)
    return notices


async def _bayplan(connection: ApiConnection, taker: GroupTaker, notices: list[str]) -> None:
    try:
        bodies, version = await CustomResources(connection).list(_PLURAL)
    except NotFoundError:
        taker.withhold(GroupSource.BAYPLAN, "Bayplan's CustomResourceDefinitions are not installed; apply them")
        return
    except ClusterWriteError as error:
        _withhold(taker, GroupSource.BAYPLAN, f"the PodGroups of bayplan.dev cannot be listed: {error}", notices)
        return
    groups = BayplanGroups(taker)
    try:
        classes, _ = await list_objects(connection, PRIORITY_CLASSES, PriorityClass)
    except (ForbiddenError, NotFoundError) as error:
        classes = []
        notices.append(f"PriorityClasses cannot be listed, so PodGroups stand by their highest member: {error}")
    for each in classes:
        groups.class_added(each)
    groups.listed(PodGroup, bodies, version)
    for key, problems in groups.problems.items():
        notices.append(_invalid(f"{key} of bayplan.dev", problems))


async def _served(connection: ApiConnection, api: GroupApi[Any], taker: GroupTaker, notices: list[str]) -> None:
    group = api.source.value
    try:
        found = await find_versions(connection, api)
    except ClusterWriteError as error:
        _withhold(taker, api.source, why_refused(api, error), notices)
        return
    if not found.read:
        taker.withhold(api.source, why_absent(api, found))
        return
    try:
        shown, unreadable = await list_objects(connection, f"/apis/{group}/{found.read}/{_PLURAL}", api.kind)
    except ClusterWriteError as error:
        _withhold(taker, api.source, f"the PodGroups of {group} cannot be listed: {error}", notices)
        return
    taker.serve(api.source)
    if unreadable:
        notices.append(f"{unreadable} of the PodGroups of {group} cannot be read and were left out")
    for each in shown:
        try:
            taker.group_changed(api.translate(each))
        except ConfigError as error:
            notices.append(_invalid(f"{each.metadata.namespace}/{each.metadata.name} of {group}", error.problems))


def _withhold(taker: GroupTaker, source: GroupSource, reason: str, notices: list[str]) -> None:
    taker.withhold(source, reason)
    notices.append(f"pods that name a PodGroup of {source.value} are shown as held back: {reason}")


def _invalid(what: str, problems: Iterable[Problem]) -> str:
    return f"PodGroup {what} is not valid and left out: {'; '.join(map(str, problems))}"
