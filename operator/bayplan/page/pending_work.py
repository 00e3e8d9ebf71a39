"""Pods that wait, grouped by cause, with what the oldest pod of each lacks and what would help it; gangs that wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest
from itertools import islice

from msgspec import Struct
from msgspec.structs import asdict, replace

from bayplan.explanation.documents import Explanation, Verdict
from bayplan.explanation.rendering import lack_text
from bayplan.introspection.status_building import gang_state
from bayplan.introspection.status_model import GangState
from bayplan.page.page_sources import PageSources, Panel, Turns
from bayplan.simulation.simulation import NO_ROOM_FOR_GANG, cause_of, without_names
from bayplan.texts.document_formats import error_text
from scheduler_core.cycle.failure_handler import POD_SCHEDULED
from scheduler_core.cycle.filter_and_score import ZONE_LABEL
from scheduler_core.explain.findings import NodeLacks, Unblocking
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.queueing.gang_members import Gang

SHOWN = 50
"""Maximum number of groups in the document."""
_MAX_GROUPS = 2000
"""Maximum number of causes that are distinguished in one document."""
DRY_RUNS = 2
"""Dry runs for each document; a document is built every two seconds at most."""
_REMEMBERED_SECONDS = 30.0
_SHORT_SECONDS = 0.01
"""Duration of a dry run up to which one is made while pods wait for their attempt."""
_EXAMPLES = 5
_PODS_PER_LOOK = 64
_OTHER = "other causes"
_FIRST_ATTEMPT = "the first attempt has not been made yet"
_REJECTED_BY = "rejected by "
_FAILED = "the last attempt failed; its condition is not known yet"
_NO_CONDITION = (_REJECTED_BY, _FAILED)
_GANG_INCOMPLETE = "members of its gang are missing or gated"
_RESERVED_NODES = ("node(s) had untolerated taint", "node(s) were unschedulable")
_NOT_TRIED = frozenset(("gated", "parked"))


class PendingGroup(Struct, frozen=True, rename="camel"):
    """Pods that wait for the same cause.

    Attributes:
        id: Identifies the cause, also in later documents.
        cause: The decisive reasons of the last attempt, those of the nearest node, or of the gate.
        elsewhere: Reasons of the last attempt that hold only on nodes further away; "" for none.
        plugins: Plugins that rejected or gate the pods.
        place: Place in the queue of most of these pods.
        oldest_seconds: Age of the oldest pod.
        nearest_miss: What the nearest node lacks for the oldest pod; "" if it is not known.
        helps: Event that would requeue the oldest pod; "" if it is not known.
        error: Why the oldest pod cannot be explained, "" if it can.
        profiles: Their schedulerNames.
        examples: Some of the pods, the oldest first, as ``namespace/name``.
        command: Command that explains the oldest pod.
    """

    id: str
    cause: str
    plugins: tuple[str, ...]
    place: str
    count: int
    oldest_seconds: float
    nearest_miss: str
    helps: str
    profiles: tuple[str, ...]
    examples: tuple[str, ...]
    command: str
    error: str = ""
    elsewhere: str = ""


class PendingWork(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        total: Number of pods in the queue.
        groups: Groups by cause, largest first.
        omitted: Pods in groups that are not in the document.
    """

    total: int
    groups: tuple[PendingGroup, ...]
    omitted: int
    command: str


class _Group:
    """Group under construction."""

    __slots__ = ("count", "examples", "oldest", "oldest_age", "places", "plugins", "profiles")

    def __init__(self) -> None:
        self.count = 0
        self.places: Counter[str] = Counter()
        self.plugins: set[str] = set()
        self.profiles: set[str] = set()
        self.examples: list[str] = []
        self.oldest: QueuedPod | None = None
        self.oldest_age = float("-inf")


@dataclass(frozen=True, slots=True)
class _Finding:
    """Result of a dry run."""

    uid: str
    attempts: int
    found_at: float
    nearest_miss: str
    helps: str
    error: str = ""
    cause: str = ""


class PendingPanel(Panel):
    def __init__(self, sources: PageSources, shown: int = SHOWN, dry_runs: int = DRY_RUNS) -> None:
        super().__init__(sources)
        self._shown = shown
        self._dry_runs = dry_runs
        self._findings: dict[str, _Finding] = {}
        self._dry_run_seconds = 0.0
        self._dry_run_at = float("-inf")

    async def build(self, turns: Turns) -> PendingWork:
        groups, total = await self._grouped(turns)
        ordered = sorted(groups.items(), key=lambda item: (-item[1].count, item[0]))[: self._shown]
        shown = [(_id_of(cause), cause, group) for cause, group in ordered]
        await self._find(shown, turns)
        listed = tuple(self._group(*each) for each in shown)
        omitted = total - sum(group.count for group in listed)
        return PendingWork(total, listed, omitted, self._sources.commands.queue)

    def without_ages(self, document: PendingWork) -> PendingWork:
        return replace(document, groups=tuple(replace(group, oldest_seconds=0.0) for group in document.groups))

    async def _grouped(self, turns: Turns) -> tuple[dict[str, _Group], int]:
        now, wall = self._sources.clock.now(), self._sources.clock.wall().timestamp()
        context = self._sources.scheduler.context
        pods = [
            (place, pod)
            for place, pod in context.queue.readings.places()
            if place != "parked" or context.profiles.meant_by(pod.profile)
        ]
        await turns.pause_if_due()
        groups: dict[str, _Group] = {}
        for position, (place, pod) in enumerate(pods):
            cause = _cause(place, pod)
            group = groups.get(cause)
            if group is None:
                if len(groups) >= _MAX_GROUPS:
                    cause = _OTHER
                group = groups.setdefault(cause, _Group())
            created = pod.info.pod.metadata.creation_timestamp
            age = now - pod.timestamp if created is None else wall - created.timestamp()
            group.count += 1
            group.places[place] += 1
            group.profiles.add(pod.profile)
            group.plugins.update(pod.rejected_by)
            if pod.gated_by:
                group.plugins.add(pod.gated_by)
            if age > group.oldest_age:
                group.oldest, group.oldest_age = pod, age
            if len(group.examples) < _EXAMPLES:
                group.examples.append(pod.info.key)
            if position % _PODS_PER_LOOK == 0:
                await turns.pause_if_due()
        return groups, len(pods)

    def _group(self, identity: str, cause: str, group: _Group) -> PendingGroup:
        assert group.oldest is not None
        meta = group.oldest.info.pod.metadata
        finding = self._findings.get(identity)
        key, plugins = group.oldest.info.key, group.plugins
        gang = self._sources.scheduler.context.queue.gangs.of_uid(group.oldest.uid)
        if gang is not None and gang.unit.entry is not None:
            # The queue stores what rejected a gang with its entry, not with its members.
            plugins = plugins | gang.unit.entry.rejected_by
        found = "" if finding is None else finding.cause
        decisive, elsewhere = _divided(cause, found if group.count == 1 else without_names(found))
        return PendingGroup(
            id=identity,
            cause=decisive,
            elsewhere=elsewhere,
            plugins=tuple(sorted(plugins)),
            place=group.places.most_common(1)[0][0],
            count=group.count,
            oldest_seconds=round(max(0.0, group.oldest_age), 1),
            nearest_miss="" if finding is None else finding.nearest_miss,
            helps=_help_of(group) if finding is None else finding.helps,
            error="" if finding is None else finding.error,
            profiles=tuple(sorted(group.profiles)),
            examples=(key, *islice((each for each in group.examples if each != key), _EXAMPLES - 1)),
            command=self._sources.commands.explain(meta.namespace, meta.name),
        )

    async def _find(self, shown: list[tuple[str, str, _Group]], turns: Turns) -> None:
        """Dry-run the oldest pods of the groups whose finding is missing or oldest, few at a time."""
        now = self._sources.clock.now()
        self._findings = {identity: self._findings[identity] for identity, *_ in shown if identity in self._findings}
        due = []
        for identity, _, group in shown:
            pod = group.oldest
            if pod is None or not pod.attempts or group.places.keys() <= _NOT_TRIED:
                continue
            finding = self._findings.get(identity)
            is_current = finding is not None and (finding.uid, finding.attempts) == (pod.uid, pod.attempts)
            if finding is None or now - finding.found_at >= (_REMEMBERED_SECONDS if is_current else self.interval):
                due.append((float("-inf") if finding is None else finding.found_at, identity, pod))
        due.sort(key=lambda each: each[0])
        for _, identity, pod in due[: self._dry_runs]:
            # Each dry run has a turn of its own.
            await turns.pause()
            if self._may_dry_run():
                self._dry_run(identity, pod)

    def _may_dry_run(self) -> bool:
        """Return whether a dry run would not delay attempts: it cannot be interrupted and is long in large clusters."""
        context = self._sources.scheduler.context
        if context.suspension.is_on:
            return False
        is_short = self._dry_run_seconds <= _SHORT_SECONDS
        is_overdue = self._sources.clock.now() - self._dry_run_at >= _REMEMBERED_SECONDS
        return is_short or is_overdue or context.queue.readings.is_idle

    def _dry_run(self, identity: str, pod: QueuedPod) -> None:
        sources, meta = self._sources, pod.info.pod.metadata
        began = sources.clock.now()
        try:
            explanation, problem = sources.explain_pod(meta.namespace, meta.name), ""
        except Exception as error:  # noqa: BLE001 - shown in the group, so that the others are shown, too
            explanation, problem = None, error_text("the dry run of a pending pod", error)
        nearest, helps = ("", "") if explanation is None else what_is_missing(explanation)
        cause = "" if explanation is None else _decisive(explanation)
        if explanation is not None and explanation.verdict is Verdict.ERROR:
            problem = explanation.headline
        self._dry_run_at = sources.clock.now()
        self._dry_run_seconds = self._dry_run_at - began
        self._findings[identity] = _Finding(pod.uid, pod.attempts, self._dry_run_at, nearest, helps, problem, cause)


def what_is_missing(explanation: Explanation) -> tuple[str, str]:
    """Return what the nearest node lacks, and the event that would help; "" for what the explanation lacks."""
    nearest, events = explanation.nearest, explanation.unblocking
    gang = explanation.gang
    if gang is not None and gang.places and gang.places[0].next_member is not None:
        following = gang.places[0].next_member
        nearest, events = following.nearest or nearest, following.unblocking or events
    return (_miss_text(nearest[0]) if nearest else ""), (_event_text(events[0]) if events else "")


def _decisive(explanation: Explanation) -> str:
    """Return the reasons against the nearest node, or those that hold for all nodes; "" if there are none."""
    gang = explanation.gang
    if explanation.verdict is not Verdict.UNSCHEDULABLE:
        return ""
    if gang is not None:
        following = gang.places[0].next_member if gang.places else None
        nearest = () if following is None else following.nearest
        return f"{NO_ROOM_FOR_GANG}{_reasons(nearest[0])}" if nearest else ""
    if explanation.nearest:
        return _reasons(explanation.nearest[0])
    return ", ".join(each.reason for one in explanation.rejections for each in one.reasons)


def _reasons(miss: NodeLacks) -> str:
    return ", ".join(dict.fromkeys(reason for lack in miss.lacks for reason in lack.reasons))


def _divided(cause: str, decisive: str) -> tuple[str, str]:
    """Divide a cause into the decisive reasons, "" if a dry run found none, and those that hold only on other nodes."""
    prefix = NO_ROOM_FOR_GANG if cause.startswith(NO_ROOM_FOR_GANG) else ""
    # What the last attempt of a gang adds after its reasons is in the message of the gang.
    reasons = (cause.removeprefix(prefix).partition("; ")[0] if prefix else cause).split(", ")
    if decisive:
        first = set(decisive.removeprefix(prefix).split(", "))
        # The names in reasons are masked in the cause.
        masked = {without_names(reason) for reason in first}
        rest = [reason for reason in reasons if reason not in masked]
        if len(rest) < len(reasons):
            return decisive, ", ".join(rest)
        # A condition that states other reasons than the dry run is that of an attempt in another situation.
        return (decisive if cause.startswith(_NO_CONDITION) else cause), ""
    # Most clusters have nodes for other purposes, and some that are cordoned.
    first_reasons = [reason for reason in reasons if not reason.startswith(_RESERVED_NODES)]
    if not first_reasons or len(first_reasons) == len(reasons):
        return cause, ""
    return prefix + ", ".join(first_reasons), ", ".join(reason for reason in reasons if reason not in first_reasons)


def _miss_text(miss: NodeLacks) -> str:
    return f"node {miss.node}: {'; '.join(map(lack_text, miss.lacks))}"


def _event_text(event: Unblocking) -> str:
    return f"{event.what} (it then fits on {event.fits_on})" if event.fits_on else event.what


def _help_of(group: _Group) -> str:
    """Return what would help pods that are never attempted; "" for others, whose explanation has it."""
    if set(group.places) != {"parked"}:
        return ""
    return f"a SchedulerProfile that serves schedulerName {', '.join(sorted(group.profiles))}"


def _cause(place: str, pod: QueuedPod) -> str:
    if place == "parked":
        return f'no profile serves schedulerName "{pod.profile}"'
    if pod.gated_by:
        return _gate_cause(pod.gated_by, pod.gate_reasons)
    if not pod.attempts:
        return _GANG_INCOMPLETE if place == "gated" else _FIRST_ATTEMPT
    for condition in pod.info.pod.status.conditions:
        if condition.type == POD_SCHEDULED and condition.message:
            return _cause_of(condition.message)
    plugins = ", ".join(sorted(pod.rejected_by))
    return f"{_REJECTED_BY}{plugins}" if plugins else _FAILED


@lru_cache(maxsize=4096)
def _cause_of(message: str) -> str:
    return cause_of(message)


@lru_cache(maxsize=1024)
def _gate_cause(plugin: str, reasons: tuple[str, ...]) -> str:
    return cause_of("; ".join(reasons)) if reasons else f"gated by {plugin}"


def _id_of(cause: str) -> str:
    return blake2b(cause.encode(errors="surrogatepass"), digest_size=6).hexdigest()


SHOWN_GANGS = 200
"""Maximum number of gangs in the document."""
_DOMAINS = 50


class DomainMembers(Struct, frozen=True, rename="camel"):
    """Members of a gang that are bound or assumed in one topology domain.

    Attributes:
        key: Node label.
        name: Value of the label; "" for nodes without it.
    """

    key: str
    name: str
    members: int


class WaitingGang(GangState, frozen=True, rename="camel", kw_only=True):
    """A waiting gang.

    Attributes:
        missing: Members of minMember that do not exist or are gated.
        domains: Members with a node by topology domain, most members first.
    """

    missing: int
    domains: tuple[DomainMembers, ...]
    command: str


class WaitingGangs(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        gangs: Waiting gangs, highest priority first, then oldest first.
        omitted: Waiting gangs that are not in the document.
    """

    total: int
    gangs: tuple[WaitingGang, ...]
    omitted: int
    command: str


class GangsPanel(Panel):
    def __init__(self, sources: PageSources, shown: int = SHOWN_GANGS) -> None:
        super().__init__(sources)
        self._shown = shown

    async def waiting(self, turns: Turns) -> list[Gang]:
        """Return the waiting gangs, in any order."""
        found = []
        for gang in list(self._sources.scheduler.context.queue.gangs):
            # A gang without such members has all its members on nodes, or they have ended.
            if (gang.waiting or gang.gates) and (gang.group is None or gang.needed):
                found.append(gang)
            await turns.pause_if_due()
        return found

    async def build(self, turns: Turns) -> WaitingGangs:
        found = await self.waiting(turns)
        first = nsmallest(self._shown, found, key=lambda gang: (-gang.priority, gang.since, gang.key))
        shown = []
        for gang in first:
            shown.append(self._shown_gang(gang))
            await turns.pause_if_due()
        return WaitingGangs(len(found), tuple(shown), len(found) - len(shown), self._sources.commands.queue)

    def without_ages(self, document: WaitingGangs) -> WaitingGangs:
        return replace(document, gangs=tuple(replace(gang, seconds=0.0) for gang in document.gangs))

    def _shown_gang(self, gang: Gang) -> WaitingGang:
        state = gang_state(gang, self._sources.scheduler.context.clock.now())
        present = len(gang.placed) + gang.succeeded + len(gang.waiting)
        fields = asdict(state)
        return WaitingGang(
            **fields,
            missing=max(0, state.min_member - present),
            domains=self._domains(gang),
            command=self._sources.commands.explain(gang.key.namespace, f"podgroup/{gang.key.name}"),
        )

    def _domains(self, gang: Gang) -> tuple[DomainMembers, ...]:
        cache = self._sources.scheduler.context.cache
        topology = None if gang.group is None else gang.group.topology
        key = ZONE_LABEL if topology is None else topology.key
        counts: Counter[str] = Counter()
        for uid in gang.placed:
            placed = cache.get(uid)
            node = None if placed is None or placed.info.row < 0 else cache.columns.nodes[placed.info.row]
            counts["" if node is None else node.metadata.labels.get(key, "")] += 1
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_DOMAINS]
        return tuple(DomainMembers(key, name, members) for name, members in ordered)
