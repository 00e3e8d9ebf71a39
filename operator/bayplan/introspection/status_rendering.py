"""Renders the operator's status as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.introspection.status_model import (
    DevicesState,
    PlanState,
    ProfileState,
    QueuedPodState,
    ReservationCounts,
    Status,
)
from bayplan.kube.served_apis import SUPPORTED_RELEASES
from bayplan.texts.document_formats import capitalized, counted, read_answer
from bayplan.texts.report_sections import report_renderers, table_of

PAGE_TITLE = "Status of Bayplan"
"""Title of the status as a page."""


read_status = partial(read_answer, kind=Status, what="a status")
"""Decodes the response of the operator's endpoint."""


def sections(status: Status) -> Iterator[RenderableType]:
    """Yield what people read of a status whose texts are printable."""
    yield _headline(status)
    if status.profiles:
        yield Group(Text("Profiles", style="bold"), _profiles(status.profiles))
    if any(profile.extenders for profile in status.profiles):
        yield Group(Text("Extenders", style="bold"), _extenders(status.profiles))
    if status.parked:
        waiting = ", ".join(f"{name} ({count})" for name, count in sorted(status.parked.items()))
        where = " in this process" if status.selector else ""
        yield Text.assemble((f"Pods without a live profile{where}  ", "bold"), waiting)
    if status.contested_nodes:
        title = f"Contested nodes ({status.contested})"
        yield Group(Text(title, style="bold"), *_contested_nodes(status))
    if status.waiting:
        yield Group(Text("Waiting at Permit", style="bold"), _waiting(status))
    if status.nominations:
        nominated = table_of(("POD", "NODE"), ((each.pod, each.node) for each in status.nominations))
        yield Group(Text("Nominated", style="bold"), nominated)
    if status.gangs:
        yield Group(Text(f"Waiting gangs ({status.waiting_gangs})", style="bold"), *_gangs(status))
    if status.queue:
        yield Group(Text("Queue", style="bold"), _queue(status.queue), *_omitted(status))
    if status.plans:
        yield Group(Text("Plans of moves", style="bold"), _plans(status.plans))
    yield from _devices(status.devices)
    yield from _reservations(status.reservations)
    yield from _server(status)
    for warning in status.warnings:
        yield Text(warning, "red")
    for line in _failing_watches(status):
        yield Text(line, "red")


RENDERERS = report_renderers(sections)


def _plans(plans: tuple[PlanState, ...]) -> Table:
    rows = (
        (
            plan.name,
            f"{plan.objective} (dry run)" if plan.dry_run else plan.objective,
            plan.phase or "-",
            f"{plan.moved} of {plan.planned}",
            plan.message or plan.gain or "-",
        )
        for plan in plans
    )
    return table_of(("PLAN", "OBJECTIVE", "PHASE", "MOVED", "RESULT"), rows)


def _devices(devices: DevicesState) -> Iterator[RenderableType]:
    """Yield a line about devices; none for a cluster without devices and claims."""
    pools = devices.pools_complete + devices.pools_incomplete + devices.pools_invalid
    claims = devices.claims_allocated + devices.claims_pending + devices.claims_in_flight
    if not pools and not claims:
        return
    faulty = [
        f"{count} {state}"
        for state, count in (("incomplete", devices.pools_incomplete), ("invalid", devices.pools_invalid))
        if count
    ]
    states = f" ({', '.join(faulty)})" if faulty else ""
    text = (
        f"{devices.devices} in {counted(pools, 'pool')}{states}, "
        f"{devices.in_use} in use; claims: {devices.claims_allocated} allocated, {devices.claims_pending} pending, "
        f"{devices.claims_in_flight} in flight"
    )
    if devices.api_version:
        text += f"; read in {devices.api_version}"
    yield Text.assemble(("Devices  ", "bold"), text)
    if devices.problem:
        yield Text(f"Resource claims are not allocated: {devices.problem}", "red")


def _reservations(counts: ReservationCounts | None) -> Iterator[RenderableType]:
    """Yield a line about NodeReservations; none without any."""
    if counts is None or counts == ReservationCounts():
        return
    numbers = (
        (counts.held, f"held for {counted(counts.pods, 'pod')}"),
        (counts.pending, "pending"),
        (counts.impossible, "impossible"),
        (counts.consumed, "consumed"),
        (counts.expired, "expired"),
    )
    yield Text.assemble(
        ("Reservations  ", "bold"),
        ", ".join(f"{number} {state}" for number, state in numbers if number),
        ("; bayplan reserve lists them", "dim"),
    )


def _server(status: Status) -> Iterator[RenderableType]:
    server = status.server
    if not server.is_supported:
        yield Text(
            f"API server: Kubernetes {server.version}, Bayplan is tested with {', '.join(SUPPORTED_RELEASES)}", "yellow"
        )
    for missing in server.missing:
        yield Text(f"API server: Kubernetes {server.version} does not have {missing}")
    if server.group_versions:
        yield Text(f"Groups of other APIs that are read: {', '.join(server.group_versions)}")


_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot \w+ resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
)


def _failing_watches(status: Status) -> Iterator[str]:
    """Yield a line for each watch that fails, and one for all that a user may not read."""
    forbidden: dict[str, list[str]] = {}
    for informer in status.informers:
        found = _FORBIDDEN.search(informer.last_error)
        if found is not None:
            group = f".{found['group']}" if found["group"] else ""
            forbidden.setdefault(found["user"], []).append(f"{found['resource']}{group}")
        elif informer.last_error or not informer.synced:
            yield f"Watch of {informer.resource}: {informer.last_error or 'the first list is not complete'}"
    for user, resources in forbidden.items():
        listed = ", ".join(dict.fromkeys(resources))
        yield (
            f'User "{user}" may not list and watch {listed}. Grant both verbs in a ClusterRole, as that of the chart; '
            "the operator continues by itself"
        )


def _missing(status: Status) -> Iterator[str]:
    """Yield what the process waits for; the reasons of watches follow below, so that the conditions are one entry."""
    reasons = {informer.last_error for informer in status.informers if informer.last_error}
    watched = []
    for each in status.missing:
        condition, _, reason = each.partition(": ")
        resource, being_listed, _ = condition.partition(" are being listed")
        if being_listed and reason in reasons:
            watched.append(resource)
        else:
            yield each
    if watched:
        yield f"{', '.join(watched)} are being listed; the reasons follow"


def state_text(status: Status) -> Text:
    """Return whether the process schedules, and if not, why."""
    if status.missing:
        return Text(f"Not ready: {'; '.join(_missing(status))}", style="bold red")
    if status.role:
        return Text(capitalized(status.role), style="bold cyan")
    return Text("Scheduling", style="bold green")


def _headline(status: Status) -> RenderableType:
    cache = status.cache
    nodes, pods = counted(cache.nodes, "node"), counted(cache.pods, "pod")
    facts = f"bayplan {status.version}, up {_seconds(status.uptime_seconds)}; {nodes}, {pods}"
    if cache.assumed:
        facts += f", {len(cache.assumed)} of them assumed"
    facts += f"; {status.binding} binding"
    if status.is_suspended:
        facts += "; the scheduling cycle is suspended: it waits for an extender, or takes long"
    if status.selector:
        facts += f"; serves the profiles that match {status.selector}"
    if status.namespace:
        facts += f"; pods and gangs below are those of namespace {status.namespace}"
    return Group(state_text(status), Text(facts, style="dim"))


def _profiles(profiles: tuple[ProfileState, ...]) -> Table:
    rows = []
    for each in profiles:
        numbers = (each.active, each.backoff, each.unschedulable, each.gated, each.in_flight, each.scheduled)
        rows.append((each.name, each.revision, *numbers, _last_error(each)))
    counts = ("ACTIVE", "BACKOFF", "UNSCHEDULABLE", "GATED", "IN FLIGHT", "SCHEDULED")
    return table_of(("PROFILE", "REVISION", *counts, "LAST ERROR"), rows)


def _last_error(profile: ProfileState) -> str:
    if not profile.last_error:
        return "-"
    since = profile.last_error_seconds
    return profile.last_error if since is None else f"{_seconds(since)} ago: {profile.last_error}"


def _extenders(profiles: tuple[ProfileState, ...]) -> Table:
    rows = (
        (profile.name, extender.url_prefix, extender.state, extender.last_error or "-")
        for profile in profiles
        for extender in profile.extenders
    )
    return table_of(("PROFILE", "EXTENDER", "CIRCUIT", "LAST ERROR"), rows)


def _contested_nodes(status: Status) -> Iterator[RenderableType]:
    rows = (
        (
            node.node,
            ", ".join(node.rivals),
            node.count,
            _seconds(node.seconds),
            _seconds(node.last_seconds),
            ", ".join(["overcommitted"] * node.is_overcommitted + ["avoided"] * node.is_avoided) or "-",
            ", ".join(node.pods) or "-",
        )
        for node in status.contested_nodes
    )
    yield table_of(("NODE", "RIVALS", "PODS TOO MANY", "SINCE", "LAST", "NOW", "LAST PODS"), rows)
    yield from _more(status.contested - len(status.contested_nodes))


def _more(count: int) -> Iterator[RenderableType]:
    if count:
        yield Text(f"and {count} more; --all shows them", style="dim")


def _waiting(status: Status) -> Table:
    rows = (
        (
            pod.pod,
            pod.node,
            _seconds(pod.seconds),
            ", ".join(f"{plugin} ({_seconds(left)})" for plugin, left in pod.plugins.items()),
        )
        for pod in status.waiting
    )
    return table_of(("POD", "NODE", "SINCE", "PLUGINS (TIMEOUT IN)"), rows)


def _gangs(status: Status) -> Iterator[RenderableType]:
    rows = (
        (
            gang.gang,
            gang.place or "-",
            gang.priority,
            gang.needed if gang.min_member else "?",
            gang.waiting,
            _seconds(gang.seconds),
            gang.reservation or "-",
            gang.reason,
            gang.message,
        )
        for gang in status.gangs
    )
    headings = ("GANG", "PLACE", "PRIORITY", "NEEDED", "WAITING", "AGE", "RESERVED", "REASON", "MESSAGE")
    yield table_of(headings, rows)
    yield from _more(status.waiting_gangs - len(status.gangs))


def _queue(queue: tuple[QueuedPodState, ...]) -> Table:
    rows = (
        (pod.place, pod.pod, pod.profile, pod.priority, _seconds(pod.seconds), pod.attempts, _message(pod))
        for pod in queue
    )
    return table_of(("PLACE", "POD", "PROFILE", "PRIORITY", "SINCE", "ATTEMPTS", "MESSAGE"), rows)


def _message(pod: QueuedPodState) -> str:
    parts = []
    if pod.gated_by:
        parts.append(f"{pod.gated_by}: {', '.join(pod.reasons)}" if pod.reasons else pod.gated_by)
    elif pod.rejected_by:
        parts.append(f"rejected by {', '.join(pod.rejected_by)}")
    if pod.backoff_seconds:
        parts.append(f"next attempt in {_seconds(pod.backoff_seconds)}")
    if pod.nominated_node:
        parts.append(f"nominated to {pod.nominated_node}")
    return "; ".join(parts) or "-"


def _omitted(status: Status) -> Iterator[RenderableType]:
    shown: dict[str, int] = {}
    for pod in status.queue:
        shown[pod.place] = shown.get(pod.place, 0) + 1
    more = [
        f"{count - shown.get(place, 0)} {place}"
        for place, count in status.places.items()
        if count > shown.get(place, 0)
    ]
    if more:
        yield Text(f"and {', '.join(more)} more; --all shows them", style="dim")


def _seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 172800 else f"{whole // 86400}d"
