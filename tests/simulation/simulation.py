"""One run: a cluster's lifetime from a seed, checked at every step and at its end.

The course of a run::

    the operator starts ─▶ steps, each checked ─▶ all faults are removed ─▶ rest ─▶ final check

Everything is drawn from the seed, time is virtual, and tasks are ordered, so that equal seeds give equal traces.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from scheduler_core.cycle.failure_handler import SCHEDULER_ERROR
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.pod import Pod
from tests.simulation.api_server import US, ApiServer
from tests.simulation.controllers import Controllers
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_invariants import (
    HeldDevices,
    check_allocations,
    check_bound_devices,
    check_devices_at_rest,
)
from tests.simulation.device_objects import claim_names
from tests.simulation.device_world import DeviceWorld
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.gang_invariants import check_gangs_at_rest, check_gangs_now
from tests.simulation.invariants import check_at_rest, check_bind, check_now
from tests.simulation.ledger import Surroundings
from tests.simulation.network import Network
from tests.simulation.node_rooms import NodeRooms
from tests.simulation.operator_life import OperatorLife
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import PROFILES
from tests.simulation.records import Records
from tests.simulation.steps import Step, draw_steps, has_devices, shadow_revision
from tests.simulation.tree_invariants import check_trees_at_rest, check_trees_now
from tests.simulation.tree_world import TreeWorld
from tests.simulation.virtual_loop import StalledError, VirtualLoop
from tests.simulation.world import Scene, World

_LOOK_SECONDS = 0.25
_REST_SECONDS = 45.0
_LONGEST_REST_SECONDS = 600.0
_REST_LOOK_SECONDS = 5.0
_LONGEST_BINDING_SECONDS = 60.0
_ROUNDS_TO_END = 100


@dataclass(slots=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        seed: Its seed.
        problems: Problems in the order in which they were found; the run ends with the first.
        trace: Events, one a line.
        counts: Faults that took effect.
        seconds: Virtual seconds.
        steps: The steps that were performed.
        bound: Number of pods that the operator bound.
    """

    seed: int
    problems: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    steps: tuple[Step, ...] = ()
    bound: int = 0

    @property
    def digest(self) -> str:
        """Short hash of the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]


def run_seed(
    seed: int,
    *,
    without: Collection[int] = (),
    trials: Callable[[], None] | None = None,
    records: Records | None = None,
) -> Outcome:
    """Run a seed.

    Args:
        seed: Seed of everything.
        without: Numbers of steps to leave out.
        trials: Called when the run is set up; tests use it to plant things.
        records: Receives the records of the operator; None for no records.

    Returns:
        The outcome.
    """
    steps = tuple(step for step in draw_steps(seed) if step.number not in without)
    random.seed(seed)  # jitter of the operator's retries is drawn from the module's own generator
    logging.disable(logging.CRITICAL)
    collects = gc.isenabled()
    gc.disable()  # a run makes little garbage; collecting it would cost a third of the time
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        simulation = Simulation(loop, seed, steps, records)
        if trials is not None:
            trials()
        return simulation.run()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        if collects:
            gc.enable()
        logging.disable(logging.NOTSET)


class Simulation:
    """A run under way."""

    def __init__(self, loop: VirtualLoop, seed: int, steps: Iterable[Step], records: Records | None = None) -> None:
        self._loop = loop
        self._steps = tuple(steps)
        self._outcome = Outcome(seed, steps=self._steps)
        self._counts = FaultCounts()
        self.server = ApiServer()
        self.network = Network(loop, self.server, self._counts, random.Random(f"{seed}/network"))
        self._rooms = NodeRooms(self.server, loop.time)
        self._controllers = Controllers(loop, self.server, self._counts, seed)
        self.server.on_bound = self._on_bound
        self.server.on_event = self._on_event
        self.groups = PodGroups(self.network.say)
        self._around = Surroundings(
            self.server,
            self._counts,
            {},
            self.network.say,
            self._complain,
            loop.time,
            {},
            {},
            self.groups,
            self._on_placed,
            has_devices(seed),
            records,
            shadow_revision(seed),
        )
        self.supervisor = OperatorSupervisor(
            loop, self._counts, seed, lambda options: OperatorLife(loop, self.network, self._around, options)
        )
        self.network.on_answered = self._around.bound.__setitem__
        scene = Scene(seed, self.server, self.network, self._controllers, self.supervisor, self._counts)
        self.world = World(scene, self.groups)
        self._device_api = DeviceApi(self.server)
        self._bound_late: set[str] = set()
        self._devices = DeviceWorld(scene, self._device_api)
        self.world.add_acts(self._devices.acts)
        self.world.add_acts(TreeWorld(self.network, self.groups, self.world.gangs.jobs).acts)
        self.server.on_device_request = self._device_api.respond
        self._device_api.on_written = self._on_claim_written

    def run(self) -> Outcome:
        """Run to the end or to the first problem."""
        outcome = self._outcome
        try:
            self._loop.run_until_complete(self._run())
        except StalledError as stalled:
            self._complain(str(stalled))
        finally:
            self._end_tasks()
        outcome.trace = self.network.trace
        outcome.counts = dict(self._counts.by_name)
        outcome.seconds = self._loop.virtual_now
        return outcome

    def _end_tasks(self) -> None:
        self.supervisor.life.kill()
        # Tasks that are cancelled may start others, above all in a run that a planted bug has broken.
        for _ in range(_ROUNDS_TO_END):
            left = asyncio.all_tasks(self._loop)
            if not left:
                return
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    async def _run(self) -> None:
        self.world.begin()
        if self._around.has_devices:
            self._devices.begin()
        self.supervisor.begin()
        for step in self._steps:
            await self._until(step.at)
            if self._outcome.problems:
                return
            self.world.act(step)
        await self._until(self._loop.virtual_now + 5.0)
        if not self._outcome.problems:
            await self._rest()

    async def _until(self, at: float) -> None:
        while self._loop.virtual_now < at and not self._outcome.problems:
            await asyncio.sleep(min(_LOOK_SECONDS, at - self._loop.virtual_now))
            self._check(check_now(self.supervisor, self.network, self.server))
            self._check(check_gangs_now(self.supervisor))
            self._check(check_trees_now(self.supervisor))

    async def _rest(self) -> None:
        """Remove all faults, wait until nothing happens any more, and check."""
        self.network.say("heal")
        self.network.heal()
        self._controllers.failing = 0
        self.world.gangs.heal()
        if self._around.has_devices:
            self._devices.heal()
        for name in PROFILES:
            self.supervisor.return_profile(name)
        quiet = 0.0
        before: tuple[object, ...] = ()
        for _ in range(int(_LONGEST_REST_SECONDS / _REST_LOOK_SECONDS)):
            await asyncio.sleep(_REST_LOOK_SECONDS)
            self._check(check_now(self.supervisor, self.network, self.server))
            self._check(check_gangs_now(self.supervisor))
            self._check(check_trees_now(self.supervisor))
            if self._outcome.problems:
                return
            now = self._fingerprint()
            quiet = quiet + _REST_LOOK_SECONDS if now == before else 0.0
            before = now
            if quiet >= _REST_SECONDS and not self.supervisor.is_restarting:
                self._check(check_at_rest(self.supervisor, self.server, self.groups))
                self._check(check_gangs_at_rest(self.supervisor, self.server, self.groups))
                self._check(check_trees_at_rest(self.supervisor, self.groups))
                known = HeldDevices(self.server, self._device_api, self._counts, self._bound_late)
                self._check(check_devices_at_rest(self.supervisor.life, known))
                return
        self._complain(f"no rest after {_LONGEST_REST_SECONDS:g} s: {before}")

    def _fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes while anything happens."""
        life = self.supervisor.life
        queue = life.scheduler.context.queue
        # A gang whose attempts end in an error is tried until the error goes: until its members share a domain again.
        failing = [gang for gang in queue.gangs.units() if gang.outcome and gang.outcome.reason == SCHEDULER_ERROR]
        members = {uid for gang in failing for uid in gang.waiting}
        attempts = sum(pod.attempts for pod in queue.readings if pod.uid not in members)
        attempts += sum(gang.entry.attempts for gang in queue.gangs.units() if gang.entry and gang not in failing)
        return (self.server.version, life.number, attempts, queue.readings.in_flight_count, life.queued_writes)

    def _check(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self._complain(problem)

    def _complain(self, problem: str) -> None:
        self.network.say(f"WRONG: {problem}")
        self._outcome.problems.append(problem)

    def _on_placed(self, uid: str) -> None:
        self.world.gangs.placed(uid)

    def _on_bound(self, pod: Pod, who: str) -> None:
        self._around.bound[pod.metadata.uid] = pod.spec.node_name
        if who == US:
            self._outcome.bound += 1
            self._around.ours[pod.metadata.uid] = pod.spec.node_name
            since = self._loop.virtual_now - _LONGEST_BINDING_SECONDS
            self._check(check_bind(self.server, self._rooms, pod, self._around.ours, since))
            self._check(check_bound_devices(self._device_api, pod))
            self.world.gangs.bound(pod)
        elif claim_names(pod):
            self._bound_late.add(pod.metadata.uid)
        self._controllers.run(pod)

    def _on_claim_written(self, old: ResourceClaim, new: ResourceClaim, who: str) -> None:
        self._check(check_allocations(self._device_api.claims()))
        self._devices.written(old, new, who)

    def _on_event(self, document: dict[str, object]) -> None:
        if document.get("reason") == "Preempted":
            self._counts.add("evicted")
