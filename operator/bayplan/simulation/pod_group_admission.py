"""Admission of hand-written PodGroups and CompositePodGroups, and their translation to the core's model.

CompositePodGroups are scheduled as with the feature gate CompositePodGroups, which is off by default.

A PriorityClass that does not exist is an error for Kubernetes' own PodGroups, as in the API server's admission. A
Bayplan PodGroup that names one gets the highest priority of its members, as in a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from bayplan.gangs.foreign_group_models import NativeGroup, SchedulerPluginsGroup
from bayplan.gangs.group_translation import from_bayplan, from_scheduler_plugins
from bayplan.gangs.native_group_translation import UnsupportedGroupError, from_composite, from_native
from bayplan.resources.pod_group import PodGroup as BayplanGroup
from bayplan.simulation.cluster_files import Placed
from bayplan.simulation.decoding_problems import decoding_problem
from bayplan.simulation.storage_admission import DEFAULT_NAMESPACE, uid_of
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.nullable_forms import convert
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup

_GATE = "CompositePodGroups are simulated as with feature gate CompositePodGroups, which is off by default"

PriorityOf = Callable[[str], int | None]
"""Returns the value of a PriorityClass, of the default one for an empty name; None if there is no such class."""


@dataclass(frozen=True, slots=True)
class AdmittedGroups:
    """PodGroups of all APIs, as the API server would store them.

    Attributes:
        refused: Groups that Bayplan cannot obey, with the problems; their members are gated.
    """

    groups: tuple[PodGroup | CompositePodGroup, ...] = ()
    refused: tuple[tuple[GroupKey, tuple[Problem, ...]], ...] = ()


def admitted_groups(
    placed: Sequence[Placed[dict[str, Any]]], priority_of: PriorityOf, problems: list[Problem], notices: list[str]
) -> AdmittedGroups:
    """Complete and translate PodGroups of all three APIs."""
    groups: dict[GroupKey, PodGroup | CompositePodGroup] = {}
    refused: dict[GroupKey, tuple[Problem, ...]] = {}
    first: dict[GroupKey, Placed[dict[str, Any]]] = {}
    for each in placed:
        body = _completed(each.object)
        meta = body["metadata"]
        key = GroupKey(_source(body), meta["namespace"], meta["name"])
        where = f"{each.place} ({key.source.kind} {key})"
        other = first.setdefault(key, each)
        if other is not each:
            message = f"is already defined in {other.place}; remove one or give it another name"
            problems.append(Problem(where, message))
            continue
        try:
            groups[key] = _TRANSLATED[key.source](body, priority_of)
            if key.source is GroupSource.BAYPLAN and groups[key].priority is None:
                notices += _missing_class(key, body)
        except UnsupportedGroupError as error:
            refused[key] = error.problems
            notices.append(f"{key.source.kind} {key} cannot be scheduled: {error}")
        except ConfigError as error:
            problems += [Problem(f"{where}: {problem.path}", problem.message) for problem in error.problems]
        except msgspec.ValidationError as error:
            problem = decoding_problem(error, body)
            problems.append(Problem(f"{where}: {problem.path}", problem.message))
    if any(key.source is GroupSource.COMPOSITE for key in groups):
        notices.append(_GATE)
    ordered = sorted(groups.items(), key=lambda pair: (pair[0].namespace, pair[0].name))
    return AdmittedGroups(tuple(group for _, group in ordered), tuple(sorted(refused.items())))


def _source(body: Mapping[str, Any]) -> GroupSource:
    group = str(body["apiVersion"]).partition("/")[0]
    return GroupSource.COMPOSITE if body["kind"] == GroupSource.COMPOSITE.kind else GroupSource(group)


def _completed(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(body["metadata"])
    namespace = metadata.setdefault("namespace", DEFAULT_NAMESPACE)
    metadata.setdefault("uid", uid_of(f"{body['kind']}.{body['apiVersion']}", namespace, metadata["name"]))
    return {**body, "metadata": metadata}


def _missing_class(key: GroupKey, body: Mapping[str, Any]) -> list[str]:
    name = body["spec"].get("priorityClassName")
    notice = (
        f'PodGroup {key} names PriorityClass "{name}", which is not in the files; it gets the highest priority of its '
        "members"
    )
    return [notice] if name else []


def _bayplan(body: Mapping[str, Any], priority_of: PriorityOf) -> PodGroup:
    resource = BayplanGroup.from_object({"metadata": body["metadata"], "spec": body.get("spec")})
    name = resource.spec.priority_class_name
    return from_bayplan(resource, priority_of(name) if name else None, body.get("status"))


def _scheduler_plugins(body: Mapping[str, Any], priority_of: PriorityOf) -> PodGroup:
    del priority_of
    return from_scheduler_plugins(convert(body, SchedulerPluginsGroup))


def _native(body: Mapping[str, Any], priority_of: PriorityOf) -> PodGroup:
    group = convert(_with_priority(body, priority_of), NativeGroup)
    return from_native(group, _version(body), are_trees_read=True)


def _composite(body: Mapping[str, Any], priority_of: PriorityOf) -> CompositePodGroup:
    return from_composite(convert(_with_priority(body, priority_of), NativeGroup), _version(body))


def _version(body: Mapping[str, Any]) -> str:
    return str(body["apiVersion"]).rpartition("/")[2]


def _with_priority(body: Mapping[str, Any], priority_of: PriorityOf) -> Mapping[str, Any]:
    """Set the priority from the class as admission does, unless an API server has already done so."""
    spec = body.get("spec")
    if not isinstance(spec, Mapping) or spec.get("priority") is not None:
        return body
    name = str(spec.get("priorityClassName") or "")
    value = priority_of(name)
    if value is None and name:
        message = f'there is no PriorityClass "{name}"; add it to the files or correct the name'
        raise ConfigError([Problem("spec.priorityClassName", message)])
    return {**body, "spec": {**spec, "priority": value}}


_TRANSLATED: Mapping[GroupSource, Callable[[Mapping[str, Any], PriorityOf], PodGroup | CompositePodGroup]] = {
    GroupSource.BAYPLAN: _bayplan,
    GroupSource.SCHEDULER_PLUGINS: _scheduler_plugins,
    GroupSource.NATIVE: _native,
    GroupSource.COMPOSITE: _composite,
}
