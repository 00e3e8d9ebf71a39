"""Law: the limits of a profile on preemption victims hold when the evictions begin, not only when they are planned.

A plan is older than its evictions if its cycle waits for an extender, runs in slices with the state frozen, or is made
in a copy of the process. Until then a user may delete a pod of the same budget, a budget may shrink, and a group that
is disrupted as a whole may grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.default_preemption.eviction import Evictions
from scheduler_core.ports import NodeVictims
from scheduler_core.scheduler import SchedulerPorts
from scheduler_core.scheduler_options import SchedulerOptions
from scheduler_core.step_counter import NO_LIMIT, StepCounter
from tests.support.builders import node, pod
from tests.support.gang_preemption import running_pod, terminating_pod, with_pod_groups
from tests.support.gangs import group, member, members
from tests.support.moved_searches import Run, Slices
from tests.support.preemption import budget
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig
from tests.support.scripted_extender import ScriptedExtender, extender
from tests.support.tables import table

SLICE_STEPS = 3
FILLERS = 60
NEVER = PreemptionSettings(never_violate_disruption_budgets=True)
DEFAULT = PreemptionSettings()
OTHER = running_pod("other", "far", priority=20, labels={"app": "web"})
Change = Callable[[Rig], None]


class Interrupted(Slices):
    """Journal that changes the cluster between the first two slices of a cycle."""

    def __init__(self) -> None:
        super().__init__(SLICE_STEPS)
        self.changes: list[Callable[[], None]] = []

    async def between_slices(self, work: Coroutine[Any, Any, None]) -> None:
        """Change the cluster once."""
        while self.changes:
            self.changes.pop()()
        await work


def _fill(made: Rig) -> None:
    """Add full nodes; the victim of least priority is protected by a budget that allows one disruption."""
    with_pod_groups(made)
    made.scheduler.workload_feed.added(budget("web", {"app": "web"}, 1))
    made.scheduler.group_feed.group_changed(group("victim", min_member=1, disrupts_whole=True))
    for name in ("first", "second", "third", "far", "spare"):
        made.add(node(name, allocatable={"cpu": "2", "pods": "9"}))
    made.add(running_pod("web", "first", priority=1, cpus=2, labels={"app": "web"}))
    made.add(running_pod("second", "second", priority=5, cpus=2), running_pod("third", "third", priority=6, cpus=2))
    made.add(OTHER, running_pod("busy", "far", priority=20), running_pod("idle", "spare", priority=20, cpus=1))
    for number in range(FILLERS):
        made.add(node(f"n{number}", allocatable={"cpu": "2", "pods": "9"}))
        made.add(running_pod(f"high{number}", f"n{number}", priority=20), running_pod(f"low{number}", f"n{number}", 8))


def _wanted(kind: str) -> list[Pod]:
    if kind == "pod":
        return [pod("high", requests={"cpu": "2"}, priority=9)]
    return members(2, priority=9, requests={"cpu": "2"})


def _add(made: Rig, kind: str) -> None:
    if kind == "gang":
        made.scheduler.group_feed.group_changed(group())
    made.add(*_wanted(kind))


async def _with_extender(kind: str, settings: PreemptionSettings, prepare: Change, change: Change) -> set[str]:
    """Change the cluster while an extender answers the preemption of a pod."""
    assert kind == "pod"
    client = ScriptedExtender()
    made = default_rig(serve=False, ports=SchedulerPorts(make_extender=lambda *_: client))
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=settings, extenders=(extender(),)))
    _fill(made)
    prepare(made)
    changes = [change]

    def answer(candidates: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        while changes:
            changes.pop()(made)
        return candidates

    client.on_preempt = answer
    _add(made, kind)
    async with made.running():
        await made.scheduler.until_idle()
    assert "preempt" in client.called_verbs()
    return {deletion.name for deletion in made.writer.deletions}


async def _in_slices(kind: str, settings: PreemptionSettings, prepare: Change, change: Change) -> set[str]:
    """Change the cluster between two slices of a cycle."""
    journal = Interrupted()
    ports = SchedulerPorts(journal=journal)
    options = SchedulerOptions(gang_reservation_seconds=0.0, attempt_steps=NO_LIMIT >> 20)
    made = default_rig(serve=False, ports=ports, options=options)
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=settings))
    _fill(made)
    prepare(made)
    _add(made, kind)
    journal.changes.append(lambda: change(made))
    async with made.running():
        for _ in range(4000):
            await asyncio.sleep(0)
    assert not journal.changes
    assert not made.context.suspension.is_on
    return {deletion.name for deletion in made.writer.deletions}


async def _moved(kind: str, settings: PreemptionSettings, prepare: Change, change: Change) -> set[str]:
    """Change the cluster while a copy of the process searches."""
    run = Run.begun(in_background=True, slice_steps=SLICE_STEPS)
    made = run.made
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=settings))
    _fill(made)
    prepare(made)
    _add(made, kind)
    async with made.running():
        await run.until_moved()
        change(made)
        await run.step(20)
    return {deletion.name for deletion in made.writer.deletions}


CYCLES = {"extender": _with_extender, "slices": _in_slices, "copy": _moved}
KINDS = table(
    "cycle, kind",
    ("a pod, with an extender", "extender", "pod"),
    ("a pod, in slices", "slices", "pod"),
    ("a pod, in a copy", "copy", "pod"),
    ("a gang, in slices", "slices", "gang"),
    ("a gang, in a copy", "copy", "gang"),
)


def _nothing(_: Rig) -> None:
    """Change nothing."""


def _delete_other(made: Rig) -> None:
    made.scheduler.feed.pod_updated(OTHER, terminating_pod(OTHER))


def _shrink_budget(made: Rig) -> None:
    made.scheduler.workload_feed.updated(budget("web", {"app": "web"}, 1), budget("web", {"app": "web"}, 0))


CHANGES: dict[str, Change] = {"a user deletes a pod of the budget": _delete_other, "the budget shrinks": _shrink_budget}
AT_FIRST = {"pod": {"web"}, "gang": {"web", "second"}}
BESIDE = {"pod": {"second"}, "gang": {"second", "third"}}


@KINDS
async def test_without_a_change_the_plan_is_carried_out(cycle: str, kind: str) -> None:
    """The budget allows the victim of least priority."""
    assert await CYCLES[cycle](kind, NEVER, _nothing, _nothing) == AT_FIRST[kind]


@KINDS
@pytest.mark.parametrize("change", CHANGES)
async def test_no_budget_is_violated_by_an_older_plan(cycle: str, kind: str, change: str) -> None:
    """The victims are searched again, and pods that no budget protects are evicted.

    The victims of a gang are chosen by what budgets show, and they do not show the deleted pod. A gang without topology
    has one domain, which is not used then.
    """
    is_unused = kind == "gang" and CHANGES[change] is _delete_other
    assert await CYCLES[cycle](kind, NEVER, _nothing, CHANGES[change]) == (set() if is_unused else BESIDE[kind])


@table("change, kind", *((f"{change}, {kind}", change, kind) for change in CHANGES for kind in AT_FIRST))
async def test_by_default_the_plan_is_carried_out_as_in_kube_scheduler(change: str, kind: str) -> None:
    """kube-scheduler evicts what it has planned on its snapshot."""
    assert await _in_slices(kind, DEFAULT, _nothing, CHANGES[change]) == AT_FIRST[kind]


def _join(made: Rig) -> None:
    """Replace the victim on the first node by a member of a group that is disrupted as a whole."""
    made.scheduler.feed.pod_deleted(running_pod("web", "first", priority=1, cpus=2, labels={"app": "web"}))
    made.add(member("whole", "victim", node_name="first", priority=1, requests={"cpu": "2"}))


def _grow(made: Rig) -> None:
    made.add(member("joined", "victim", node_name="spare", priority=1))


GROWN = table(
    "settings, grown",
    ("default", DEFAULT, True),
    ("few victims", PreemptionSettings(max_victims=1), False),
    ("budgets", NEVER, True),
)


@KINDS
@GROWN
async def test_a_group_that_grows_is_evicted_as_a_whole_or_not_at_all(
    cycle: str, kind: str, settings: PreemptionSettings, grown: bool
) -> None:
    """A pod of the group that is bound meanwhile is a victim, too, and counts."""
    whole = {"whole", "joined"} if kind == "pod" else {"whole", "joined", "second"}
    if kind == "gang" and not grown:
        # Its only domain is not used with so many victims.
        settings = PreemptionSettings(max_victims=2)
    others = BESIDE[kind] if kind == "pod" else set()
    assert await CYCLES[cycle](kind, settings, _join, _grow) == (whole if grown else others)


@pytest.mark.parametrize("cycle", CYCLES)
async def test_the_law_fails_if_the_limits_are_checked_by_plans_only(
    cycle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this planted bug, the budget is violated."""
    monkeypatch.setattr(Evictions, "_limit_reached", lambda *_: "")
    assert await CYCLES[cycle]("pod", NEVER, _nothing, _delete_other) == AT_FIRST["pod"]


async def _slices_within(kind: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Return how often the limits were checked, and how many slices ended between a check and the first eviction."""
    begun, inside, ended = 0, False, 0
    evict, between = Evictions._evict_within_limits, Interrupted.between_slices

    def checked(self: Evictions, *given: Any) -> None:
        nonlocal begun, inside
        begun, inside = begun + 1, True
        evict(self, *given)
        inside = False

    async def counted(self: Interrupted, work: Coroutine[Any, Any, None]) -> None:
        nonlocal ended
        ended += inside
        await between(self, work)

    monkeypatch.setattr(Evictions, "_evict_within_limits", checked)
    monkeypatch.setattr(Interrupted, "between_slices", counted)
    await _in_slices(kind, NEVER, _nothing, _nothing)
    return begun, ended


@pytest.mark.parametrize("kind", AT_FIRST)
async def test_no_slice_ends_between_the_check_and_the_evictions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster cannot change in between, and a replay evicts at the same point."""
    assert await _slices_within(kind, monkeypatch) == (1, 0)


@pytest.mark.parametrize("kind", AT_FIRST)
async def test_the_law_fails_if_slices_end_in_the_check(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With this planted bug, a slice ends there."""
    monkeypatch.setattr(StepCounter, "uninterrupted", lambda _: nullcontext())
    _, ended = await _slices_within(kind, monkeypatch)
    assert ended
