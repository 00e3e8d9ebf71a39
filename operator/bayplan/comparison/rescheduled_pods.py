"""The running pods that a comparison decides again, and label selectors as kubectl reads them on its command line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.simulation import pod_to_schedule
from scheduler_core.errors import ConfigError, Problem, SelectorError
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, group_key_of
from scheduler_core.model.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, LabelMatcher, compile_label_selector

_STATIC_OWNER = "Node"
_DAEMON_SET = "DaemonSet"

_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)")
_EXISTENCE = re.compile(r"(?P<absent>!\s*)?(?P<key>[^\s=!()]+)")
_COMMA = re.compile(r",(?![^()]*\))")


class Reschedule(Enum):
    """State from which running pods are decided again."""

    NO = "no"
    EMPTY = "empty"
    PRESENT = "present"


@dataclass(frozen=True, slots=True)
class PodSelection:
    """Selects running pods.

    Attributes:
        namespace: Namespace of the pods; "" for all.
    """

    state: Reschedule
    namespace: str
    labels: LabelMatcher


@dataclass(frozen=True, slots=True)
class RescheduledPods:
    """Running pods that are decided again.

    Attributes:
        cluster: The cluster, in which the pods have no node if they are decided from the empty state.
        restarts: The pods that are restarted one after the other, with the members of a gang in one entry.
        notices: Why other selected pods stay.
    """

    cluster: AdmittedCluster
    restarts: tuple[tuple[Pod, ...], ...]
    chosen: tuple[Pod, ...]
    notices: tuple[str, ...]


def choose_pods(cluster: AdmittedCluster, scheduler_name: str, selection: PodSelection) -> RescheduledPods:
    """Choose the running pods that are decided again.

    Pods of DaemonSets, static pods and pods with resource claims stay: the first two are not placed freely, and devices
    that are allocated stay allocated.
    """
    if selection.state is Reschedule.NO:
        return RescheduledPods(cluster, (), (), ())
    stays: Counter[str] = Counter()
    chosen = []
    for pod in cluster.pods:
        if not _is_selected(pod, scheduler_name, selection):
            continue
        reason = next((reason for reason, holds in _STAYS.items() if holds(pod)), "")
        if reason:
            stays[reason] += 1
        else:
            chosen.append(pod)
    notices = tuple(f"{count} selected running pods stay where they are: {why}" for why, count in sorted(stays.items()))
    if selection.state is Reschedule.PRESENT:
        return RescheduledPods(cluster, _restarts(chosen), tuple(chosen), notices)
    uids = {pod.metadata.uid for pod in chosen}
    emptied = replace(
        cluster,
        pods=tuple(pod_to_schedule(pod) if pod.metadata.uid in uids else pod for pod in cluster.pods),
    )
    return RescheduledPods(emptied, (), tuple(chosen), notices)


def _is_selected(pod: Pod, scheduler_name: str, selection: PodSelection) -> bool:
    return (
        bool(pod.spec.node_name)
        and not pod.is_terminal
        and pod.spec.scheduler_name == scheduler_name
        and selection.namespace in ("", pod.metadata.namespace)
        and selection.labels.matches(pod.metadata.labels)
    )


def _is_owned_by(pod: Pod, kind: str) -> bool:
    return any(owner.kind == kind for owner in pod.metadata.owner_references)


_STAYS: dict[str, Callable[[Pod], bool]] = {
    "they are being deleted": lambda pod: pod.metadata.deletion_timestamp is not None,
    "they belong to DaemonSets": lambda pod: _is_owned_by(pod, _DAEMON_SET),
    "they are static pods": lambda pod: _is_owned_by(pod, _STATIC_OWNER),
    "they have resource claims": lambda pod: bool(
        pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None
    ),
}


def _restarts(pods: Iterable[Pod]) -> tuple[tuple[Pod, ...], ...]:
    """Put the members of a gang together, at the place of the first."""
    together: dict[GroupKey | str, list[Pod]] = {}
    for pod in pods:
        together.setdefault(group_key_of(pod) or pod.metadata.uid, []).append(pod)
    return tuple(map(tuple, together.values()))


def parse_label_query(text: str) -> LabelMatcher:
    """Parse a selector such as ``app=web,tier in (a, b),!canary``; an empty text matches everything.

    Raises:
        ConfigError: The text is not a selector.
    """
    if not text.strip():
        return compile_label_selector(LabelSelector())
    try:
        requirements = tuple(_requirement(part.strip()) for part in _COMMA.split(text))
        return compile_label_selector(LabelSelector(match_expressions=requirements))
    except SelectorError as error:
        message = f'"{text}" is not a label selector: {error}; write it as for kubectl, such as app=web,tier in (a,b)'
        raise ConfigError([Problem("--selector", message)]) from error


def _requirement(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], IN if found["operator"] == "in" else NOT_IN, values)
    if found := _EQUALITY.fullmatch(part):
        return Requirement(found["key"], NOT_IN if found["operator"] == "!=" else IN, (found["value"],))
    if found := _EXISTENCE.fullmatch(part):
        return Requirement(found["key"], DOES_NOT_EXIST if found["absent"] else EXISTS, ())
    raise SelectorError(f'"{part}" cannot be read')
