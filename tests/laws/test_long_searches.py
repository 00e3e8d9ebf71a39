"""Law of long searches: no object that the API server admits stops the event loop, or other pods.

The scheduler runs with objects at the limits of admission. What runs between two turns of the event loop is counted in
calls of functions, by the interpreter's own profile hook, so that the count is independent of the scheduler's steps.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.cycle.journal import Journal
from scheduler_core.errors import AttemptLimitError
from scheduler_core.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, DeviceObject
from tests.support.builders import node, pod
from tests.support.devices import (
    DRIVER,
    Body,
    allocated_claim,
    alternative,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    slice_of,
    taint_rule,
    using,
)
from tests.support.gang_devices import claimant, gang, report, settled
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import DEFAULT_NAME, Rig, configured, gang_rig

MOST_CALLS = 260_000
"""Calls between two turns of the event loop; the interpreter makes about ten million a second."""
STEPS = 12_000
TENS = "[1,2,3,4,5,6,7,8,9,10]"
UUID = f'device.attributes["{DRIVER}"].uuid'
COSTLY = f'{TENS}.all(a,{TENS}.all(b,{TENS}.all(c,{TENS}.all(d, a+b+c+d > 0 && {UUID} != "q"))))'
LONG_LIST = f"[{','.join(map(str, range(1000)))}]"


@dataclass
class Objects:
    """What the API server has admitted: slices and a claim; and a class, by default one without selectors."""

    slices: Sequence[ResourceSlice]
    wanted: ResourceClaim
    classes: Sequence[DeviceClass] = ()
    nodes: int = 1


def devices(count: int, **values: Callable[[int], Body]) -> list[Body]:
    """Return devices with attributes by number; ``uuid`` is unique."""
    return [
        device(
            f"d{number}",
            attributes={"uuid": {"string": f"u{number}"}, **{name: of(number) for name, of in values.items()}},
        )
        for number in range(count)
    ]


def _modulo(divisor: int, number: int) -> Body:
    return {"int": number % divisor}


def repeated(count: int, expression: str) -> list[str]:
    """Return expressions that differ, and are as costly."""
    return [f"{expression} && {number}=={number}" for number in range(count)]


def costly_selectors() -> Objects:
    """Return a claim with 8 requests of 32 costly selectors, none of them equal."""
    wanted = [exactly(f"r{number}", *repeated(32, f"{COSTLY} && {number}>=0")) for number in range(8)]
    return Objects([slice_of(devices(8))], claim(*wanted))


def selectors_at_the_cost_limit() -> Objects:
    """Return a claim whose selector exceeds the cost limit, on many distinct devices."""
    cubed = f'{TENS}.all(e, {COSTLY}) || device.attributes["{DRIVER}"].uuid != ""'
    return Objects([slice_of(devices(128))], claim(exactly("r", cubed)))


def one_costly_call() -> Objects:
    """Return a claim whose selector compares two lists of 1,000 elements in one call."""
    listed = f'sets.intersects({LONG_LIST}.map(x,x),{LONG_LIST}.map(x,x+5000)) || {UUID} == "q"'
    return Objects([slice_of(devices(32))], claim(exactly("r", listed)))


def long_expressions() -> Objects:
    """Return a claim with 128 expressions of 10 KiB, none of them equal."""
    terms = " || ".join([f'device.driver == "x{number}"' for number in range(370)])
    wanted = [exactly(f"r{number}", *repeated(32, f"({terms} || {number}>=0)")) for number in range(4)]
    return Objects([slice_of(devices(4))], claim(*wanted))


def costly_class() -> Objects:
    """Return a claim without selectors, of a class with 32 costly ones."""
    return Objects([slice_of(devices(32))], claim(exactly("r")), [device_class("gpu", *repeated(32, COSTLY))])


def distinct_values() -> Objects:
    """Return a claim for 14 devices with distinct values, of which 8 can only have 7."""
    rows = devices(24, t=lambda number: {"bool": number < 7})
    free = [exactly(f"f{number}") for number in range(6)]
    tight = [exactly(f"t{number}", f'device.attributes["{DRIVER}"].t') for number in range(8)]
    constraint = {"requests": [], "distinctAttribute": f"{DRIVER}/uuid"}
    return Objects([slice_of(rows)], claim(*free, *tight, constraints=[constraint]))


def constraints_on_every_request() -> Objects:
    """Return a claim with 32 requests and 32 constraints over a pool of 128 devices."""
    rows = devices(128, **{f"a{n}": partial(_modulo, n + 2) for n in range(4)})
    pairs = [{"requests": [f"r{n}", f"r{(n * 7 + 3) % 32}"], "matchAttribute": f"{DRIVER}/a{n % 4}"} for n in range(16)]
    apart = [{"requests": [f"r{n}", f"r{n + 16}"], "distinctAttribute": f"{DRIVER}/a{n % 4}"} for n in range(16)]
    return Objects([slice_of(rows)], claim(*(exactly(f"r{n}") for n in range(32)), constraints=[*pairs, *apart]))


def alternatives() -> Objects:
    """Return a claim with 32 requests of 8 alternatives each, of which only the last one is possible."""
    wanted = [
        first_available(
            f"r{n}",
            *(alternative(f"s{k}", f'{UUID} == "u{n}-{k}"', count=2) for k in range(7)),
            alternative("last", f'{UUID} != "{n}"'),
        )
        for n in range(32)
    ]
    constraint = {"requests": [], "distinctAttribute": f"{DRIVER}/uuid"}
    return Objects([slice_of(devices(31))], claim(*wanted, constraints=[constraint]))


def many_nodes() -> Objects:
    """Return a search without a quick answer that differs on each of 60 nodes."""

    def of_node(index: int) -> ResourceSlice:
        rows = devices(24, t=lambda number: {"bool": number < 7}, own=lambda _: {"int": index})
        return slice_of(rows, node=f"n{index}")

    pools = [of_node(index) for index in range(60)]
    requests = [exactly(f"f{n}", f'device.attributes["{DRIVER}"].own >= 0') for n in range(6)]
    requests += [exactly(f"t{n}", f'device.attributes["{DRIVER}"].t') for n in range(8)]
    constraint = {"requests": [], "distinctAttribute": f"{DRIVER}/uuid"}
    return Objects(pools, claim(*requests, constraints=[constraint]), nodes=60)


def many_slices() -> Objects:
    """Return 150 slices of 128 devices for nodes with a label, and 40 such nodes."""
    term = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}
    slices = [
        slice_of(devices(128), name=f"s{number}", node="", pool=f"p{number}", nodeSelector=term)
        for number in range(150)
    ]
    return Objects(slices, claim(exactly("r", f'{UUID} == "none"')), nodes=40)


def all_devices() -> Objects:
    """Return a claim for all devices of 100 slices, which are more than a claim may have."""
    slices = [slice_of(devices(128), name=f"s{number}", pool=f"p{number}") for number in range(100)]
    return Objects(slices, claim(exactly("r", allocationMode="All"), exactly("q", allocationMode="All")))


ROWS: dict[str, Callable[[], Objects]] = {
    "costly selectors": costly_selectors,
    "selectors at the cost limit": selectors_at_the_cost_limit,
    "one costly call": one_costly_call,
    "long expressions": long_expressions,
    "a costly class": costly_class,
    "distinct values": distinct_values,
    "constraints on every request": constraints_on_every_request,
    "alternatives": alternatives,
    "many nodes": many_nodes,
    "many slices": many_slices,
    "all devices": all_devices,
}
GIVEN_UP = {
    "costly selectors",
    "selectors at the cost limit",
    "one costly call",
    "long expressions",
    "a costly class",
    "distinct values",
    "alternatives",
    "many nodes",
}
"""Rows that exceed the limit of an attempt."""


class Slices(Journal):
    """Journal that sets the size of slices."""

    def __init__(self, steps: int) -> None:
        self.slice_steps = steps


def world(objects: Objects, *, slice_steps: int | None = None, attempt_steps: int = STEPS) -> Rig:
    """Return a scheduler with the objects, whose pod has not arrived."""
    writer = RecordingClaimWriter()
    options = SchedulerOptions(attempt_steps=attempt_steps)
    ports = SchedulerPorts(claims=writer, journal=Journal() if slice_steps is None else Slices(slice_steps))
    made = gang_rig(options=options, ports=ports, serve=False)
    made.serve(configured(DEFAULT_NAME, "DynamicResources", {"filterTimeout": "0s"}))
    for each in objects.classes or (device_class(),):
        made.columns.devices.assign(each)
    for number in range(objects.nodes):
        made.add(node(f"n{number}", labels={"rack": f"r{number}"}, allocatable={"cpu": "8", "pods": "110"}))
    for published in objects.slices:
        made.scheduler.device_feed.added(published)
    report(made, writer, objects.wanted, claim(exactly("r"), name="c1"))
    return made


@dataclass
class CallCounter:
    """Largest number of calls in one uninterrupted step of the event loop."""

    count: int = 0
    largest: int = 0
    steps: list[int] = field(default_factory=list)

    @contextmanager
    def counting(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Count calls within callbacks of the event loop."""
        run = asyncio.Handle._run

        def counted(handle: asyncio.Handle) -> None:
            self.count = 0
            try:
                run(handle)
            finally:
                self.largest = max(self.largest, self.count)

        def hook(_frame: FrameType, event: str, _argument: Any) -> None:
            if event in ("call", "c_call"):
                self.count += 1

        with monkeypatch.context() as patched:
            patched.setattr(asyncio.Handle, "_run", counted)
            sys.setprofile(hook)
            try:
                yield
            finally:
                sys.setprofile(None)


@pytest.mark.parametrize("name", ROWS)
async def test_no_step_of_the_loop_is_long_and_other_pods_are_scheduled(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step of the loop exceeds its bound; a pod over its limit fails with the reason; the next pod is bound."""
    made = world(ROWS[name]())
    costly = using(pod("costly", namespace="ns", uid="costly"), "c0")
    made.add(costly, pod("plain", namespace="ns", uid="plain"))
    counter = CallCounter()
    with counter.counting(monkeypatch):
        await settled(made)
    assert counter.largest <= MOST_CALLS
    assert "plain" in made.bound
    conditions = [patch.condition for patch in made.writer.patches if patch.condition and patch.name == "costly"]
    text = f"given up after {STEPS} steps of the search by plugin DynamicResources"
    is_given_up = bool(conditions) and conditions[-1].message.startswith(text)
    assert is_given_up == (name in GIVEN_UP), conditions
    if is_given_up:
        assert conditions[-1].reason == "Unschedulable"
        assert made.place_of(costly) == "unschedulable"
        assert made.columns.devices.hardware.tally.given_up == 1


@pytest.mark.parametrize("name", sorted(GIVEN_UP - {"long expressions"}))
async def test_a_gang_over_its_limit_fails_with_the_reason(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang whose members share a costly claim fails as a whole, within the same bound of a step."""
    made = world(ROWS[name]())
    gang(made, 3)
    for number in range(3):
        made.add(*(each for each in claimant(f"m{number}", shared=("c0",)) if not isinstance(each, ResourceClaim)))
    made.add(pod("plain", namespace="ns", uid="plain"))
    counter = CallCounter()
    with counter.counting(monkeypatch):
        await settled(made)
    assert counter.largest <= MOST_CALLS
    assert set(made.bound) == {"plain"}
    assert "given up after" in made.condition.message


@pytest.mark.parametrize("name", sorted(GIVEN_UP))
def test_a_dry_run_is_bounded_and_changes_no_live_attempt(name: str) -> None:
    """A dry run ends within its steps, and a live attempt after it takes as many steps as without it."""
    spent = []
    for has_dry_run in (False, True):
        made = world(ROWS[name]())
        steps = made.context.steps
        info = made.columns.compile_pod(using(pod("other", namespace="ns", uid="other"), "c0"))
        if has_dry_run:
            instance = next(iter(made.context.profiles))
            with steps.dry_run():
                found = made.scheduler.cycles.examiner.examine(instance, info)
            assert f"dry run given up after {steps.dry_run_steps} steps" in found.error
            assert "run bayplan explain -f, which has no such limit" in found.error
        made.add(using(pod("costly", namespace="ns", uid="costly"), "c0"))
        with steps.live_attempt():
            assert made.decide() is None
        spent.append((steps.spent, made.condition.message))
    assert spent[0] == spent[1]


async def test_pods_that_are_given_up_take_a_share_of_the_time() -> None:
    """Whatever events arrive, a pod that is given up is not tried again before four times the work of all such pods."""
    made = world(costly_class(), attempt_steps=100_000)
    names = [f"costly{number}" for number in range(3)]
    made.add(*(using(pod(name, namespace="ns", uid=name), "c0") for name in names))
    for number in range(10):
        await settled(made)
        made.scheduler.device_feed.added(slice_of(devices(1), name=f"more{number}", pool=f"more{number}"))
        made.clock.advance(1.0)
    queued = [made.queue.find(name) for name in names]
    attempts = [each.attempts for each in queued if each is not None]
    assert sum(attempts) <= 3 + 10 / 4
    made.add(pod("plain", namespace="ns", uid="plain"))
    await settled(made)
    assert "plain" in made.bound


@st.composite
def small_claims(draw: st.DrawFn) -> Objects:
    """Return claims whose search takes a few to thousands of steps."""
    count = draw(st.integers(1, 9))
    rows = devices(
        count, t=lambda number: {"bool": number % 3 > 0}, v=lambda number: {"int": number % draw(st.integers(1, 3))}
    )
    wanted = [
        exactly(
            f"r{number}",
            *draw(st.sampled_from(((), (f'device.attributes["{DRIVER}"].t',), (f'{UUID} != "u1"', "1 < 2")))),
            count=draw(st.integers(1, 2)),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    attribute = draw(st.sampled_from(("matchAttribute", "distinctAttribute")))
    constraints = [{"requests": [], attribute: f"{DRIVER}/v"}] if draw(st.booleans()) else []
    nodes = draw(st.integers(1, 3))
    slices = [slice_of(rows, node=f"n{number}") for number in range(nodes)]
    return Objects(slices, claim(*wanted, constraints=constraints), nodes=nodes)


def decisions(objects: Objects, slice_steps: int, attempt_steps: int) -> tuple[Any, ...]:
    """Return what is decided for two pods with a claim each, and the number of steps."""
    made = world(objects, slice_steps=slice_steps, attempt_steps=attempt_steps)
    made.add(*(using(pod(f"p{number}", namespace="ns", uid=f"p{number}"), f"c{number}") for number in range(2)))
    asyncio.run(settled(made))
    messages = {
        name: [patch.condition and patch.condition.message for patch in made.writer.patches if patch.name == name]
        for name in ("p0", "p1")
    }
    stored = made.columns.devices.claims
    allocations = [each.status.allocation and each.status.allocation.devices.results for each in stored]
    return made.bound, messages, allocations, made.context.steps.spent


@settings(max_examples=60)
@given(small_claims(), st.integers(1, 40), st.sampled_from((20, 60, 100_000)))
def test_slices_change_no_decision(objects: Objects, slice_steps: int, attempt_steps: int) -> None:
    """Nodes, devices, reasons and numbers of steps are those of cycles that are not interrupted."""
    sliced = decisions(objects, slice_steps, attempt_steps)
    assert sliced == decisions(objects, 1 << 40, attempt_steps)


async def test_changes_that_arrive_between_slices_are_applied_after_the_cycle() -> None:
    """A node that is deleted between two slices of a cycle is still in the cycle, and gone behind it."""
    made = world(costly_selectors())
    made.add(using(pod("costly", namespace="ns", uid="costly"), "c0"))
    columns = made.columns
    async with made.running():
        await made.until(lambda: made.context.suspension.is_midway)
        made.scheduler.feed.node_deleted(node("n0", labels={"rack": "r0"}))
        assert columns.row_of("n0") >= 0
        await made.until(lambda: not made.context.suspension.is_on)
        assert columns.row_of("n0") < 0


async def test_a_scheduler_that_stops_between_slices_requeues_the_pod() -> None:
    """A cycle that is cancelled between two slices releases its pod, and the pod is in the queue again."""
    made = world(costly_selectors())
    costly = using(pod("costly", namespace="ns", uid="costly"), "c0")
    made.add(costly)
    async with made.running():
        await made.until(lambda: made.context.suspension.is_midway)
        await made.scheduler.stop(1.0)
    assert not made.context.suspension.is_on
    assert made.place_of(costly) in ("active", "backoff", "errorBackoff")
    assert not made.context.cache.assumed_count


def test_an_error_of_the_limit_names_the_plugin_and_the_steps() -> None:
    """The message names the number of steps, the plugin that was running, and the remedy."""
    limit = AttemptLimitError(100)
    limit.plugin = "DynamicResources"
    assert str(limit) == (
        "given up after 100 steps of the search by plugin DynamicResources, the limit of one attempt; use fewer or "
        "simpler requests, selectors and constraints"
    )


def large_cluster() -> DeviceIndex:
    """Return 1,500 slices of 16 devices, half of them in one pool."""
    index = DeviceIndex()
    index.assign(device_class())
    for number in range(750):
        index.assign(slice_of(devices(16), name=f"s{number}", node=f"n{number}"))
        index.assign(slice_of(devices(16), name=f"t{number}", node=f"n{number}", pool="one", count=750))
    return index


EVENTS: dict[str, DeviceObject] = {
    "a slice of 128 devices": slice_of(devices(128), name="new", node="n0", pool="new"),
    "a slice of a large pool": slice_of(devices(16), name="t0", node="n0", pool="one", count=750),
    "a slice for all nodes": slice_of(devices(128), name="all", node="", pool="all", allNodes=True),
    "a class": device_class("other", *repeated(32, COSTLY)),
    "a rule for all devices": taint_rule("rule", {"key": "k", "effect": "NoSchedule"}, {"driver": DRIVER}),
    "a rule for one device": taint_rule(
        "rule", {"key": "k", "effect": "NoExecute"}, {"driver": DRIVER, "device": "d0"}
    ),
    "a claim at its limits": constraints_on_every_request().wanted,
    "an allocation": allocated_claim(*({"pool": "one", "device": f"d{number}"} for number in range(16))),
}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_short(name: str) -> None:
    """No event of a claim, class, slice or rule takes more than its bound in a large cluster."""
    index, count = large_cluster(), 0

    def hook(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for change in (index.assign, index.assign, index.remove):
        count = 0
        sys.setprofile(hook)
        try:
            change(EVENTS[name])
        finally:
            sys.setprofile(None)
        assert count <= MOST_CALLS // 4
