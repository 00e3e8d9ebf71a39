"""Gangs that wait: their members by topology domain, what is missing, and their reservations."""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest

from msgspec import Struct
from msgspec.structs import asdict, replace

from bayplan.introspection.status_building import gang_state
from bayplan.introspection.status_model import GangState
from bayplan.page.page_sources import PageSources, Turns
from scheduler_core.cycle.percentage_of_nodes import ZONE_LABEL
from scheduler_core.queueing.gang_members import Gang

SHOWN = 200
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
        command: Command that explains the gang.
    """

    missing: int
    domains: tuple[DomainMembers, ...]
    command: str


class WaitingGangs(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        total: Number of waiting gangs.
        gangs: Waiting gangs, highest priority first, then oldest first.
        omitted: Waiting gangs that are not in the document.
    """

    total: int
    gangs: tuple[WaitingGang, ...]
    omitted: int
    command: str


class GangsPanel:
    """Builds the document."""

    interval = 2.0

    def __init__(self, sources: PageSources, shown: int = SHOWN) -> None:
        self._sources = sources
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
        """Return the document without waiting times."""
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
