"""Panels of the custom resources: SchedulerProfiles, NodeReservations and RebalancePlans.

The numbers of pods of a plan are those of the present state and of the moves that are not made yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bayplan.introspection.reports import shadow_report
from bayplan.introspection.status_building import plan_states
from bayplan.introspection.status_model import PlanState, ProfileState
from bayplan.page.page_sources import PageSources, Panel, Turns
from bayplan.profiles.profile_status import ProfileReading
from bayplan.profiles.revision_store import StoredRevision
from bayplan.profiles.rollback import changes, unified_diff
from bayplan.rebalancing.plan_documents import NodePodCounts, node_changes
from bayplan.reservations.reservation_list import ListedReservation
from bayplan.resources.resource_model import format_time

# -- profiles ---------------------------------------------------------------------------------------------------------

_MAX_CHANGES = 20
_MAX_DIFF = 8192
RESOURCES, CONFIGURATION = "resources", "configuration"


class ProfileCondition(Struct, frozen=True, rename="camel"):
    """Condition of a SchedulerProfile; ``since`` is RFC 3339, "" if it is not known."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""


class ProfileRevision(Struct, frozen=True, rename="camel"):
    """Stored revision of a profile.

    Attributes:
        number: Higher is newer.
        revision: Hash of its content.
        time: When it was stored, RFC 3339; "" if it is not known.
        cause: The change cause as the user wrote it.
        manager: Field manager of the spec.
        changes: First differences from the revision before, with those of referenced PluginConfigs.
        diff: The same as a unified diff of YAML; "" for the oldest stored revision.
        command: Command that compares the specs, "" for the oldest stored revision.
    """

    number: int
    revision: str
    time: str
    cause: str
    manager: str
    live: bool
    changes: tuple[str, ...] = ()
    diff: str = ""
    command: str = ""


class _Changes(Struct, frozen=True):
    """Differences between two revisions."""

    changes: tuple[str, ...] = ()
    diff: str = ""


_NO_CHANGES = _Changes()


class ShownProfile(Struct, frozen=True, rename="camel", kw_only=True):
    """A profile.

    Attributes:
        revision: Hash of the live revision, "" if none runs.
        revisions: Stored revisions, newest first.
        state: State of a live profile as in the status, without ages; None for a shadow and if no revision is live.
        shadow: Results of a shadow, as in ``status.shadow`` of the object, with ``shadowOf``; None for other profiles.
        command: Command that shows the revisions, or the results of a shadow.
    """

    name: str
    scheduler_name: str
    revision: str = ""
    conditions: tuple[ProfileCondition, ...] = ()
    revisions: tuple[ProfileRevision, ...] = ()
    state: ProfileState | None = None
    shadow: Mapping[str, Any] | None = None
    command: str = ""


class Profiles(Struct, frozen=True, rename="camel"):
    """Document of the panel; ``source`` is ``resources`` for SchedulerProfiles, ``configuration`` with ``--config``."""

    profiles: tuple[ShownProfile, ...]
    source: str
    command: str = "kubectl get schedulerprofiles -o wide"


class ProfilesPanel(Panel):
    def __init__(self, sources: PageSources) -> None:
        super().__init__(sources)
        self._compared: dict[tuple[str, str, str], _Changes] = {}

    async def build(self, turns: Turns) -> Profiles:
        sources = self._sources
        states = {state.name: state for state in sources.profile_states()}
        readings = sources.profile_readings()
        if readings is None:
            shown = tuple(
                ShownProfile(name=name, scheduler_name=name, command="bayplan status", **_live(state))
                for name, state in states.items()
            )
            return Profiles(shown, CONFIGURATION, "bayplan status")
        found, known, self._compared = [], self._compared, {}
        for reading in list(readings):
            for before, after in pairwise(reversed(reading.revisions)):
                key = (after.profile_uid, before.hash, after.hash)
                self._compared[key] = known.get(key) or _compared(before, after)
                await turns.pause_if_due()
            found.append(self._shown(reading, states))
            await turns.pause_if_due()
        return Profiles(tuple(sorted(found, key=lambda each: each.name)), RESOURCES)

    def _revisions(self, reading: ProfileReading) -> Iterator[ProfileRevision]:
        older = [*reading.revisions[1:], None]
        for each, before in zip(reading.revisions, older, strict=False):
            shown = _revision(each, reading.live_revision)
            if before is not None:
                found = self._compared.get((each.profile_uid, before.hash, each.hash), _NO_CHANGES)
                command = f"bayplan history {reading.name} --diff {before.number} {each.number} --resolved"
                shown = replace(shown, changes=found.changes, diff=found.diff, command=command)
            yield shown

    def _shown(self, reading: ProfileReading, states: Mapping[str, ProfileState]) -> ShownProfile:
        shown = ShownProfile(
            name=reading.name,
            scheduler_name=reading.scheduler_name,
            revision=reading.live_revision,
            conditions=tuple(map(_condition, reading.conditions)),
            revisions=tuple(self._revisions(reading)),
            command=f"bayplan history {reading.name}",
        )
        if reading.shadow_of:
            report = shadow_report(self._sources.scheduler, reading.scheduler_name)
            results = {} if report is None else report.shadow
            shadow = {"shadowOf": reading.shadow_of, **results}
            return replace(shown, shadow=shadow, command=f"bayplan status --shadow {reading.name}")
        state = states.get(reading.scheduler_name)
        # Of two profiles with one scheduler name, only the live one has the queue.
        return shown if state is None or not reading.live_revision else replace(shown, **_live(state))


def _compared(before: StoredRevision, after: StoredRevision) -> _Changes:
    if before.config is None or after.config is None:
        return _NO_CHANGES
    names = (f"revision {before.number}", f"revision {after.number}")
    text = unified_diff(before.content, after.content, names)
    if len(text) > _MAX_DIFF:
        text = f"{text[:_MAX_DIFF]}\n... more lines are cut; use the command\n"
    return _Changes(tuple(changes(before.content, after.content)[:_MAX_CHANGES]), text)


def _live(state: ProfileState) -> dict[str, Any]:
    return {"revision": state.revision, "state": replace(state, last_error_seconds=None)}


def _condition(found: Mapping[str, Any]) -> ProfileCondition:
    texts = (str(found.get(name) or "") for name in ("type", "status", "reason", "message", "lastTransitionTime"))
    return ProfileCondition(*texts)


def _revision(stored: StoredRevision, live: str) -> ProfileRevision:
    time = "" if stored.created is None else format_time(stored.created)
    origin = stored.origin
    return ProfileRevision(stored.number, stored.hash, time, origin.cause, origin.manager, stored.hash == live)


# -- reservations -----------------------------------------------------------------------------------------------------

SHOWN_RESERVATIONS = 200
"""Maximum number of reservations in the document."""
_ORDER = ("Pending", "", "Reserved", "Consumed", "Expired")


class ShownReservations(Struct, frozen=True, rename="camel"):
    """Document of the panel.

    Attributes:
        is_on: Whether NodeReservations are read; not without their feature gate.
        reservations: Those without room first, then those with room, by namespace and name.
        omitted: Number of reservations that are not in the document.
    """

    is_on: bool
    total: int
    reservations: tuple[ListedReservation, ...]
    omitted: int
    command: str


class ReservationsPanel(Panel):
    def __init__(self, sources: PageSources, shown: int = SHOWN_RESERVATIONS) -> None:
        super().__init__(sources)
        self._shown = shown

    async def build(self, turns: Turns) -> ShownReservations:
        del turns
        read, command = self._sources.reservations, self._sources.commands.reservations
        if read is None:
            return ShownReservations(is_on=False, total=0, reservations=(), omitted=0, command=command)
        found = sorted(read(), key=lambda each: (_ORDER.index(each.phase), each.namespace, each.name))
        first = tuple(found[: self._shown])
        return ShownReservations(
            is_on=True, total=len(found), reservations=first, omitted=len(found) - len(first), command=command
        )


# -- plans ------------------------------------------------------------------------------------------------------------

_MOVES, _NODES = 200, 100
_TO_BE_MADE = ("Pending", "Evicting")
_ENDED = ("Completed", "Stopped", "Invalid", "Suspended", "Scheduled")


class ShownPlan(Struct, frozen=True, rename="camel"):
    """A plan.

    Attributes:
        nodes: The first nodes whose pods the moves change that are not made yet, by name.
        command: Command that prints the whole object.
    """

    state: PlanState
    nodes: tuple[NodePodCounts, ...]
    command: str


class Plans(Struct, frozen=True, rename="camel"):
    """Document of the panel, which is only on the page of a process that makes plans."""

    plans: tuple[ShownPlan, ...] = ()
    is_served: bool = False
    command: str = "kubectl get rebalanceplans"


class PlansPanel(Panel):
    async def build(self, turns: Turns) -> Plans:
        if self._sources.plans is None:
            return Plans()
        found = list[ShownPlan]()
        for state in plan_states(self._sources.plans(), _MOVES):
            moves = () if state.phase in _ENDED else (each for each in state.moves if each.state in _TO_BE_MADE)
            nodes = node_changes(self._sources.scheduler.context.cache.columns, moves, _NODES)
            found.append(ShownPlan(state, nodes, f"kubectl get rebalanceplan {state.name} -o yaml"))
            await turns.pause_if_due()
        return Plans(tuple(found), is_served=True)
