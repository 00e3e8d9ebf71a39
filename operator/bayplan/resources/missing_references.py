"""Names in objects that do not exist: PriorityClasses, node labels and profiles.

They are warnings, because the objects may be created later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.pod_group import PodGroup, Topology
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import Problem

OF_EVERY_CLUSTER = ("system-cluster-critical", "system-node-critical")
"""PriorityClasses that the API server itself creates."""
_DEFAULT_SCHEDULER = "default-scheduler"


def missing_references(
    group: PodGroup, classes: Collection[str], node_labels: Iterable[Mapping[str, str]]
) -> Iterator[Problem]:
    """Yield a warning for each name in a PodGroup that does not exist.

    Args:
        classes: Names of the PriorityClasses; none means that they are unknown, because every cluster has some.
        node_labels: Labels of each node; none means that the nodes are unknown.
    """
    effect = "until it exists, the highest priority of the members counts"
    yield from _missing_class(group.spec.priority_class_name, classes, effect)
    yield from _missing_labels(group.spec.topology, node_labels, "the group cannot be scheduled until one has it")


def missing_of_reservation(
    reservation: NodeReservation,
    classes: Collection[str],
    node_labels: Iterable[Mapping[str, str]],
    profiles: Iterable[Mapping[str, Any]],
) -> Iterator[Problem]:
    """Yield a warning for each name in a NodeReservation that does not exist.

    Args:
        classes: As in :func:`missing_references`, as ``node_labels``.
        profiles: The SchedulerProfiles; none means that they are unknown.
    """
    effect, spec = "no room is reserved until it exists", reservation.spec
    pod_spec = (spec.template or {}).get("spec")
    pod_spec = pod_spec if isinstance(pod_spec, Mapping) else {}
    if spec.priority is None and spec.priority_class_name is None:
        name = pod_spec.get("priorityClassName")
        path = "spec.template.spec.priorityClassName"
        yield from _missing_class(name if isinstance(name, str) else None, classes, effect, path)
    yield from _missing_class(spec.priority_class_name, classes, effect)
    yield from _missing_labels(spec.topology, node_labels, "no room is reserved until one has it")
    name, path = scheduler_name_of(reservation)
    known = scheduler_names(profiles)
    if known and name not in known:
        default = "" if name != _DEFAULT_SCHEDULER or spec.scheduler_name else ", the default"
        message = f'no profile has the schedulerName "{name}"{default}{did_you_mean(name, known)}'
        yield Problem(path, f"{message}; no room is reserved until one has it")


def scheduler_name_of(reservation: NodeReservation) -> tuple[str, str]:
    """Return the scheduler name whose profile searches the room, and the path of the field that has it."""
    spec = reservation.spec
    pod_spec = (spec.template or {}).get("spec")
    of_template = pod_spec.get("schedulerName") if isinstance(pod_spec, Mapping) else None
    if spec.scheduler_name is None and isinstance(of_template, str) and of_template:
        return of_template, "spec.template.spec.schedulerName"
    return spec.scheduler_name or _DEFAULT_SCHEDULER, "spec.schedulerName"


def missing_profiles(
    names: Sequence[str], objects: Iterable[Mapping[str, Any]], path: str = "spec.scope.profiles"
) -> Iterator[Problem]:
    """Yield a warning for each scheduler name that no SchedulerProfile has; without objects they are unknown."""
    known = scheduler_names(objects)
    for index, name in enumerate(names):
        if known and name not in known:
            message = f'no profile has the schedulerName "{name}"{did_you_mean(name, known)}; it selects no pods'
            yield Problem(f"{path}[{index}]", message)


def scheduler_names(profiles: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the scheduler names of SchedulerProfiles that are no shadows."""
    known = set[str]()
    for each in profiles:
        spec, metadata = each.get("spec"), each.get("metadata")
        spec, metadata = (part if isinstance(part, Mapping) else {} for part in (spec, metadata))
        name = spec.get("schedulerName") or metadata.get("name")
        if isinstance(name, str) and "shadowOf" not in spec:
            known.add(name)
    return known


def _missing_class(
    name: str | None, classes: Collection[str], effect: str, path: str = "spec.priorityClassName"
) -> Iterator[Problem]:
    if name and classes and name not in classes:
        yield Problem(path, f'there is no PriorityClass "{name}"{did_you_mean(name, classes)}; {effect}')


def _missing_labels(
    topology: Topology | None, node_labels: Iterable[Mapping[str, str]], effect_of_key: str
) -> Iterator[Problem]:
    if topology is None:
        return
    written = {topology.key: "spec.topology.key"}
    written |= {level: f"spec.topology.levels[{index}]" for index, level in enumerate(topology.levels)}
    missing, known = dict(written), set[str]()
    for labels in node_labels:
        for key in [key for key in missing if key in labels]:
            del missing[key]
        if not missing:
            return
        known |= labels.keys()
    if not known:
        return
    for key, path in missing.items():
        is_needed = key == topology.key and topology.mode == "Required"
        effect = effect_of_key if is_needed else "it has no effect until one has it"
        yield Problem(path, f'no node has the label "{key}"{did_you_mean(key, known)}; {effect}')
