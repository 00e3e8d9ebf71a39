"""Overview: sizes of the cluster and the queue, utilisation, and what is wrong now, with links to other panels.

Problems are rejected profiles, errors of plugins, lost binds, contested and overcommitted nodes, stale watches, and
objects that cannot be decoded. Texts have no elapsed times: the overview is sent again whenever a text changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

import bayplan
from bayplan.introspection.status_building import informer_state
from bayplan.introspection.status_model import InformerState, ProfileState
from bayplan.kube.watches.informer import Informer
from bayplan.page.node_map import DeviceCounts, shown_resources
from bayplan.page.page_sources import PageSources, Panel, Turns
from bayplan.page.pending_work import GangsPanel
from bayplan.page.rates import Objective, RatesPanel
from bayplan.profiles.profile_status import CONTESTED, CONTESTED_SECONDS, ProfileReading
from bayplan.resources.resource_model import format_time
from bayplan.texts.document_formats import counted, error_text
from scheduler_core.metrics.scheduler_metrics import LostBind
from scheduler_core.model.pod_requests import CPU, PODS, amount_text
from scheduler_core.ports import Clock
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW


class Utilisation(Struct, frozen=True, rename="camel"):
    """Requested and allocatable amount; CPU in millicores, all else in whole units, and ``text`` for people."""

    resource: str
    used: int
    allocatable: int
    text: str


class DriverDevices(Struct, frozen=True, rename="camel"):
    """Devices of Dynamic Resource Allocation of one driver."""

    driver: str
    in_use: int
    devices: int


class ClusterVersion(Struct, frozen=True, rename="camel"):
    """The API server's version, "" if it is not known, and what it lacks."""

    version: str
    missing: tuple[str, ...] = ()


class Overview(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        role: Role of a standby; "" for a process that schedules.
        time: Time of the document, RFC 3339.
        nodes, pods: Number of nodes, and of pods that are on nodes.
        pending: Number of pods in the queue.
        places: Number of pods by place of the queue.
        missing: Conditions that are not met yet for readiness.
        problems: What is wrong now.
        objectives: Objectives with what was measured.
    """

    version: str
    role: str
    uptime_seconds: float
    time: str
    nodes: int
    pods: int
    pending: int
    gangs_waiting: int
    places: dict[str, int]
    cluster: ClusterVersion
    utilisation: tuple[Utilisation, ...]
    devices: tuple[DriverDevices, ...]
    missing: tuple[str, ...]
    objectives: tuple[Objective, ...]
    problems: tuple[PageProblem, ...]
    command: str


class OverviewPanel(Panel):
    interval = 1.0

    def __init__(self, sources: PageSources, gangs: GangsPanel, rates: RatesPanel, devices: DeviceCounts) -> None:
        super().__init__(sources)
        self._gangs = gangs
        self._rates = rates
        self._devices = devices

    async def build(self, turns: Turns) -> Overview:
        sources = self._sources
        gangs = await self._gangs.waiting(turns)
        devices = await self._devices.by_driver(turns)
        context = sources.scheduler.context
        places, server = self._places(), sources.server()
        return Overview(
            version=bayplan.__version__,
            role=sources.readiness.role,
            uptime_seconds=round(sources.clock.now() - sources.started, 1),
            time=format_time(sources.clock.wall()),
            nodes=context.cache.columns.count,
            pods=len(context.cache),
            pending=sum(places.values()),
            gangs_waiting=len(gangs),
            places=places,
            cluster=ClusterVersion(server.version, server.missing),
            utilisation=self._utilisation(),
            devices=tuple(DriverDevices(driver, *counts) for driver, counts in sorted(devices.items())),
            missing=tuple(sources.readiness.missing),
            objectives=self._rates.objectives(),
            problems=find_problems(sources),
            command=sources.commands.status,
        )

    def without_ages(self, document: Overview) -> Overview:
        return replace(document, uptime_seconds=0.0, time="")

    def _places(self) -> dict[str, int]:
        readings = self._sources.scheduler.context.queue.readings
        places = Counter({"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0})
        for counts in readings.counts().values():
            places["active"] += counts.active
            places["backoff"] += counts.backoff
            places["unschedulable"] += counts.unschedulable
            places["gated"] += counts.gated
        profiles = self._sources.scheduler.context.profiles
        places["parked"] = profiles.count_meant(readings.parked_counts())
        places["inFlight"] = readings.in_flight_count
        return dict(places)

    def _utilisation(self) -> tuple[Utilisation, ...]:
        columns = self._sources.scheduler.context.cache.columns
        pods = int(columns.pod_count.sum()), int(columns.allowed_pods.sum())
        found = [Utilisation(PODS, *pods, f"{pods[0]:,} / {pods[1]:,}")]
        for name, column in shown_resources(columns):
            # Sums of int64 could overflow; a double is exact enough for people.
            used = int(columns.requested[column].sum(dtype=np.float64))
            allocatable = int(columns.allocatable[column].sum(dtype=np.float64))
            unit = " cores" if name == CPU else ""
            text = f"{_grouped(amount_text(name, used))} / {_grouped(amount_text(name, allocatable))}{unit}"
            found.append(Utilisation(name, used, allocatable, text))
        return tuple(found)


def _grouped(text: str) -> str:
    """Return an amount with thousands separators, as the other numbers of the page have them."""
    return re.sub(r"^\d+", lambda found: f"{int(found[0]):,}", text)


ERROR_SECONDS = 600.0
"""Duration for which the last error of a profile counts as a problem."""
FAILING_SECONDS = 10.0
"""Silence after which a watch with an error is stale; a watch that is opened again at once is not."""
SHOWN = 50
"""Maximum number of problems in the document."""
_LENGTH = 400
_NODES = 20
_ABNORMAL = frozenset(("Contested", "Degraded", "Stalled"))
"""Conditions of a profile that are True if something is wrong; all others are then False."""
_REPEATED = frozenset((CONTESTED, "Stalled", "Reconciling"))
"""Conditions that repeat another one, or that a lost bind states with more detail."""


class PageProblem(Struct, frozen=True, rename="camel"):
    """Something that needs the attention of the reader.

    Attributes:
        kind: What is affected, such as ``profile``, ``plugin``, ``bind``, ``node``, ``watch``, ``object``.
        title: What is wrong, in a few words.
        text: Details, and what to do; "" for none.
        link: Fragment of the page that shows more.
    """

    kind: str
    title: str
    text: str
    link: str


class WatchRow(InformerState, frozen=True, rename="camel"):
    """Informer with the reasons of its problems.

    Attributes:
        problem: Why it is stale, "" if it is not.
        undecodable_objects: The first objects of which the newest version cannot be decoded, with the reason.
    """

    problem: str = ""
    undecodable_objects: tuple[str, ...] = ()


class Watches(Struct, frozen=True, rename="camel"):
    """Document of the panel of watches, those with a problem first."""

    watches: tuple[WatchRow, ...]
    command: str


class WatchesPanel(Panel):
    async def build(self, turns: Turns) -> Watches:
        del turns  # one row for each resource
        states = watch_states(self._sources.informers, self._sources.clock)
        states.sort(key=lambda each: (not _is_troubled(each), each.resource))
        return Watches(tuple(states), self._sources.commands.status)


def watch_states(informers: Mapping[str, Informer[Any]], clock: Clock) -> list[WatchRow]:
    return [_watch_state(resource, informer, clock) for resource, informer in list(informers.items())]


def _watch_state(resource: str, informer: Informer[Any], clock: Clock) -> WatchRow:
    silence = clock.now() - informer.last_event_time
    problem = ""
    if informer.synced and informer.last_error and silence >= FAILING_SECONDS:
        problem = f"changes are not received: {informer.last_error}"
    elif informer.staleness:
        problem = f"the API server has sent nothing for more than {informer.stale_seconds:g} s (maxWatchSilence)"
    elif not informer.synced and informer.last_error:
        problem = f"the first list failed: {informer.last_error}"
    undecodable = sorted(informer.unreadable.items())[:_NODES]
    reasons = tuple(f"{key.removeprefix('/')}: {each.reason}" for key, each in undecodable)
    return WatchRow(**asdict(informer_state(resource, informer)), problem=problem, undecodable_objects=reasons)


def _is_troubled(state: WatchRow) -> bool:
    return bool(state.problem or state.undecodable or state.unprocessed)


def find_problems(sources: PageSources) -> tuple[PageProblem, ...]:
    """Return all problems, those of profiles first; a source that fails is a problem itself."""
    parts: dict[str, Callable[[], Iterable[PageProblem]]] = {
        "profiles": partial(_of_profiles, sources),
        "plugins and binds": partial(_of_attempts, sources),
        "nodes": partial(_of_nodes, sources),
        "watches": partial(_of_watches, sources),
    }
    found: list[PageProblem] = []
    for what, read in parts.items():
        try:
            found.extend(read())
        except Exception as error:  # noqa: BLE001 - shown among the problems, so that the others are shown, too
            text = error_text(f"the problems of {what}", error)
            found.append(PageProblem("page", f"problems of {what} cannot be shown", text, "#/"))
    return tuple(found[:SHOWN])


def is_wrong(condition: Mapping[str, Any]) -> bool:
    """Return whether a condition of a SchedulerProfile states that something is wrong."""
    wanted = "True" if condition.get("type") in _ABNORMAL else "False"
    is_quiet = condition.get("type") == "Reconciling"
    return not is_quiet and condition.get("status") == wanted


def _of_profiles(sources: PageSources) -> Iterator[PageProblem]:
    for reading in sources.profile_readings() or ():
        for condition in reading.conditions:
            kind = str(condition.get("type"))
            if kind in _REPEATED or not is_wrong(condition):
                continue
            title = f"profile {reading.name}: {_state_of(kind, condition)}"
            yield PageProblem("profile", title, _short(str(condition.get("message") or "")), _profile(reading.name))


def _state_of(kind: str, condition: Mapping[str, Any]) -> str:
    if kind == "Accepted":
        return "spec rejected"
    state = kind if condition.get("status") == "True" else f"not {kind}"
    reason = str(condition.get("reason") or "")
    return f"{state} ({reason})" if reason and reason != kind else state


def _of_attempts(sources: PageSources) -> Iterator[PageProblem]:
    readings = tuple(sources.profile_readings() or ())
    records = sources.scheduler.context.metrics.records
    for state in sources.profile_states():
        link = _link_of(state.name, readings)
        if state.last_error and (state.last_error_seconds or 0.0) <= ERROR_SECONDS:
            title = f"profile {state.name}: {counted(state.errors, 'attempt')} ended in an error"
            yield PageProblem("plugin", title, _short(state.last_error), link)
        yield from _of_extenders(state, link)
        record = records.get(state.name)
        lost = None if record is None else record.last_lost_bind
        if record is not None and lost is not None and _is_recent(lost, sources.clock):
            title = f"profile {state.name}: {counted(record.lost_binds, 'bind')} lost to another client"
            yield PageProblem("bind", title, _lost_text(lost), link)


def _of_extenders(state: ProfileState, link: str) -> Iterator[PageProblem]:
    for extender in state.extenders:
        if extender.state != "Closed":
            title = f"profile {state.name}: extender {extender.url_prefix} is {extender.state}"
            yield PageProblem("extender", title, _short(extender.last_error), link)


def _is_recent(lost: LostBind, clock: Clock) -> bool:
    return (clock.wall() - lost.when).total_seconds() < CONTESTED_SECONDS


def _lost_text(lost: LostBind) -> str:
    return (
        f"another client bound pod {lost.pod} to node {lost.rival_node_name} while it was being bound to "
        f"{lost.node_name}; use the schedulerName in one scheduler only"
    )


def _of_nodes(sources: PageSources) -> Iterator[PageProblem]:
    """Yield the contested nodes, then those that are overcommitted without a rival."""
    context = sources.scheduler.context
    columns, contested = context.cache.columns, context.contested.current()
    for node in contested[:_NODES]:
        now = "; ".join(_excess(columns, columns.row_of(node.name)))
        text = (
            f"{counted(node.count, 'pod')} that {', '.join(node.rivals)} bound exceeded what the node offers, the "
            f"last was {node.pods[-1]}; now {now or 'its pods fit'}; give each scheduler nodes of its own"
        )
        yield PageProblem("node", f"node {node.name} is contested", _short(text), _node(node.name))
    if len(contested) > _NODES:
        yield PageProblem("node", f"{len(contested) - _NODES} more nodes are contested", "", "#/nodes")
    names = {node.name for node in contested}
    excess = columns.requested > columns.allocatable
    over = columns.alive & ((excess & (columns.requested > 0)).any(axis=0) | (columns.pod_count > columns.allowed_pods))
    rows = [row for row in np.flatnonzero(over).tolist() if columns.names[row] not in names]
    for row in rows[:_NODES]:
        name = columns.node_name(row)
        text = (
            f"{'; '.join(_excess(columns, row))}; its allocatable amounts were reduced, or another client "
            "overcommitted it more than 10 minutes ago or before this process scheduled"
        )
        yield PageProblem("node", f"node {name} is overcommitted", text, _node(name))
    if len(rows) > _NODES:
        yield PageProblem("node", f"{len(rows) - _NODES} more nodes are overcommitted", "", "#/nodes")


def _excess(columns: NodeColumns, row: int) -> Iterator[str]:
    """Yield what the pods of a row request beyond its allocatable amounts; nothing without a node."""
    if row == NO_ROW:
        return
    for column, resource in enumerate(columns.resources.keys):
        requested, allocatable = int(columns.requested[column, row]), int(columns.allocatable[column, row])
        if resource and requested and requested > allocatable:
            yield f"{resource}: {amount_text(resource, requested)} requested of {amount_text(resource, allocatable)}"
    if columns.pod_count[row] > columns.allowed_pods[row]:
        yield f"{PODS}: {int(columns.pod_count[row])} of {int(columns.allowed_pods[row])}"


def _node(name: str) -> str:
    return f"#/nodes?node={quote(name, safe='')}"


def _of_watches(sources: PageSources) -> Iterator[PageProblem]:
    for state in watch_states(sources.informers, sources.clock):
        if state.problem:
            yield PageProblem("watch", f"watch of {state.resource} is stale", _short(state.problem), "#/watches")
        if state.undecodable:
            title = f"{counted(state.undecodable, 'object')} of {state.resource} cannot be decoded"
            text = f"what depends on them fails closed: {'; '.join(state.undecodable_objects)}"
            yield PageProblem("object", title, _short(text), "#/watches")
        if state.unprocessed:
            title = f"{counted(state.unprocessed, 'change')} of {state.resource} failed to be processed"
            yield PageProblem("object", title, "each is retried; the log has the error", "#/watches")


def _profile(name: str) -> str:
    return f"#/profiles/{quote(name, safe='')}"


def _link_of(scheduler_name: str, readings: tuple[ProfileReading, ...]) -> str:
    """Return the link to the profile that serves a scheduler name."""
    for reading in readings:
        if reading.scheduler_name == scheduler_name and reading.live_revision and not reading.shadow_of:
            return _profile(reading.name)
    return _profile(scheduler_name)


def _short(text: str) -> str:
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 3]}..."
