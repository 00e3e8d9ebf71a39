"""Runs one simulated cluster lifetime from a seed, and checks it at every step and at its end.

The course of a run::

    start the operator ─▶ steps, each followed by checks ─▶ remove all faults ─▶ wait until idle ─▶ final checks

Everything random depends on the seed, time is virtual and tasks are ordered, so equal seeds give equal traces.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.waiting_causes import SCHEDULER_ERROR
from tests.simulation.api_server import OPERATOR, ApiServer
from tests.simulation.cluster_steps import ClusterSteps, StepContext
from tests.simulation.controllers import Controllers
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_invariants import (
    DeviceCheckInput,
    check_allocations,
    check_bound_devices,
    check_idle_devices,
)
from tests.simulation.device_objects import claim_names
from tests.simulation.device_steps import DeviceSteps
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.gang_invariants import check_gangs_now, check_idle_gangs
from tests.simulation.invariants import check_bind, check_idle, check_now
from tests.simulation.ledger import RunState
from tests.simulation.network import Network, WatchLag
from tests.simulation.node_capacities import NodeCapacities
from tests.simulation.node_reservations import NodeReservations
from tests.simulation.operator_process import OperatorProcess
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.owner_steps import OwnerSteps
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import PROFILES
from tests.simulation.rebalance_plans import PlannedMoves
from tests.simulation.records import Records
from tests.simulation.steps import (
    Step,
    generate_steps,
    has_devices,
    has_owners,
    has_plans,
    has_reservations,
    has_watch_lag,
    shadow_revision,
)
from tests.simulation.tree_invariants import check_idle_trees, check_trees_now
from tests.simulation.tree_steps import TreeSteps
from tests.simulation.virtual_loop import StalledError, VirtualLoop, virtual_time
from tests.support.injected_errors import InjectedErrors

_CHECK_INTERVAL_SECONDS = 0.25
_IDLE_SECONDS = 45.0
_IDLE_TIMEOUT_SECONDS = 600.0
_IDLE_CHECK_INTERVAL_SECONDS = 5.0
_MAXIMUM_BINDING_SECONDS = 60.0
_CANCELLATION_ROUNDS = 100


@dataclass(slots=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        problems: Problems in the order in which they were found; the run ends with the first.
        trace: Events, one a line.
        counts: Faults that took effect.
        seconds: Virtual seconds.
        steps: Steps that were performed.
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
    records: Records | None = None,
    observe: Callable[[Simulation], None] | None = None,
    errors: InjectedErrors | None = None,
) -> Outcome:
    """Run a seed and return its outcome.

    Args:
        seed: Seed of everything random.
        without: Numbers of steps to leave out.
        records: Receives the records of the operator; None for no records.
        observe: Called before the run begins; None for no observer.
        errors: Exceptions to inject until all faults end; None for none.
    """
    steps = tuple(step for step in generate_steps(seed) if step.number not in without)
    with virtual_time(seed) as loop:
        try:
            simulation = Simulation(loop, seed, steps, records, errors)
            if observe is not None:
                observe(simulation)
            return simulation.run()
        finally:
            sys.setprofile(None)


class Simulation:
    """A run in progress.

    Attributes:
        loop: The event loop.
        network: The network between the API server and its clients.
        supervisor: Starts and stops the operator.
        cluster_steps: Performs the steps.
        plans: RebalancePlans; None in a run without them.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        steps: Iterable[Step],
        records: Records | None = None,
        errors: InjectedErrors | None = None,
    ) -> None:
        self.loop = loop
        self._errors = errors
        self._steps = tuple(steps)
        self._outcome = Outcome(seed, steps=self._steps)
        self._counts = FaultCounts()
        self.server = ApiServer()
        lag = WatchLag(random.Random(f"{seed}/watch lag")) if has_watch_lag(seed) else None
        self.network = Network(loop, self.server, self._counts, random.Random(f"{seed}/network"), lag)
        self._capacities = NodeCapacities(self.server, loop.time)
        self._controllers = Controllers(loop, self.server, self._counts, seed)
        self.server.on_bound = self._on_bound
        self.server.on_event = self._on_event
        self.groups = PodGroups(self.network.log, lambda: str(self.server.version))
        reservations = NodeReservations(self.network, self._counts) if has_reservations(seed) else None
        self.plans = PlannedMoves(self.network, self._report_problem) if has_plans(seed) else None
        self._run_state = RunState(
            self.server,
            self._counts,
            {},
            self.network.log,
            self._report_problem,
            loop.time,
            {},
            {},
            self.groups,
            self._on_placed,
            has_devices(seed),
            records,
            shadow_revision(seed),
            reservations=reservations,
            plans=self.plans,
        )
        self.supervisor = OperatorSupervisor(
            loop, self._counts, seed, lambda options: OperatorProcess(loop, self.network, self._run_state, options)
        )
        self.network.on_false_success = self._run_state.acknowledge
        context = StepContext(seed, self.server, self.network, self._controllers, self.supervisor, self._counts)
        self.cluster_steps = ClusterSteps(context, self.groups)
        if reservations is not None:
            self.cluster_steps.add_actions(reservations.actions)
        if self.plans is not None:
            self.cluster_steps.add_actions(self.plans.actions)
        self._device_api = DeviceApi(self.server)
        self._bound_by_previous_process: set[str] = set()
        self._devices = DeviceSteps(context, self._device_api)
        self.cluster_steps.add_actions(self._devices.actions)
        self._owners = OwnerSteps(context, self.groups)
        self.cluster_steps.add_actions(self._owners.actions)
        if has_owners(seed):
            self._owners.begin()
        self.cluster_steps.add_actions(TreeSteps(self.network, self.groups, self.cluster_steps.gangs.jobs).actions)
        self.server.on_device_request = self._device_api.respond
        self._device_api.on_written = self._on_claim_written

    def run(self) -> Outcome:
        """Run to the end or to the first problem."""
        outcome = self._outcome
        try:
            self.loop.run_until_complete(self._run())
        except StalledError as stalled:
            self._report_problem(str(stalled))
        finally:
            self._end_tasks()
        outcome.trace = self.network.trace
        outcome.counts = dict(self._counts.by_name)
        outcome.seconds = self.loop.virtual_now
        return outcome

    def _end_tasks(self) -> None:
        self.supervisor.process.kill()
        # Cancelled tasks may start others, in particular in a run with a planted bug.
        for _ in range(_CANCELLATION_ROUNDS):
            left = asyncio.all_tasks(self.loop)
            if not left:
                return
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

    async def _run(self) -> None:
        self.cluster_steps.begin()
        if self._run_state.has_devices:
            self._devices.begin()
        self.supervisor.begin()
        for step in self._steps:
            await self._until(step.at)
            if self._outcome.problems:
                return
            self.cluster_steps.perform(step)
        await self._until(self.loop.virtual_now + 5.0)
        if not self._outcome.problems:
            await self._finish()

    async def _until(self, at: float) -> None:
        while self.loop.virtual_now < at and not self._outcome.problems:
            if self._errors is not None:
                # An exception ends the profile function that raised it.
                self._errors.arm()
            await asyncio.sleep(min(_CHECK_INTERVAL_SECONDS, at - self.loop.virtual_now))
            self._check_all()

    async def _finish(self) -> None:
        """Remove all faults, wait until nothing changes, and check."""
        sys.setprofile(None)
        self.network.log("remove all faults")
        self.network.heal()
        self._controllers.failing = 0
        self.cluster_steps.gangs.heal()
        self._owners.heal()
        if self._run_state.reservations is not None:
            self._run_state.reservations.heal()
        if self._run_state.has_devices:
            self._devices.heal()
        for name in PROFILES:
            self.supervisor.create_profile(name)
        quiet = 0.0
        before: tuple[object, ...] = ()
        for _ in range(int(_IDLE_TIMEOUT_SECONDS / _IDLE_CHECK_INTERVAL_SECONDS)):
            await asyncio.sleep(_IDLE_CHECK_INTERVAL_SECONDS)
            self._check_all()
            if self._outcome.problems:
                return
            now = self._fingerprint()
            quiet = quiet + _IDLE_CHECK_INTERVAL_SECONDS if now == before else 0.0
            before = now
            if quiet >= _IDLE_SECONDS and not self.supervisor.is_restarting:
                received = self.supervisor.process.received_groups.groups
                self._check(self._owners.owners.check_idle(received))
                self._check(self._owners.owned.check_idle())
                self._check(self._check_reservations(is_idle=True))
                if self.plans is not None:
                    self._check(self.plans.check_idle(self.supervisor.process))
                self._check(check_idle(self.supervisor, self.server, self.groups))
                self._check(check_idle_gangs(self.supervisor, self.server, self.groups))
                self._check(check_idle_trees(self.supervisor, self.groups))
                known = DeviceCheckInput(self.server, self._device_api, self._counts, self._bound_by_previous_process)
                self._check(check_idle_devices(self.supervisor.process, known))
                return
        self._report_problem(f"the cluster still changes after {_IDLE_TIMEOUT_SECONDS:g} s: {before}")

    def _check_reservations(self, *, is_idle: bool = False) -> Iterable[str]:
        reservations, process = self._run_state.reservations, self.supervisor.process
        if reservations is None:
            return ()
        return reservations.check_idle(process) if is_idle else reservations.check_now(process)

    def _check_all(self) -> None:
        may_feeds_raise = self._errors is not None
        self._check(check_now(self.supervisor, self.network, self.server, may_feeds_raise=may_feeds_raise))
        self._check(check_gangs_now(self.supervisor))
        self._check(check_trees_now(self.supervisor))
        self._check(self._owners.owned.check())
        self._check(self._check_reservations())

    def _fingerprint(self) -> tuple[object, ...]:
        """Return a value that changes while the cluster or the scheduler changes."""
        process = self.supervisor.process
        queue = process.scheduler.context.queue
        # A gang whose attempts end in an error is retried until its members share a topology domain again.
        failing = [gang for gang in queue.gangs.units() if gang.outcome and gang.outcome.reason == SCHEDULER_ERROR]
        members = {uid for gang in failing for uid in gang.waiting}
        attempts = sum(pod.attempts for pod in queue.readings if pod.uid not in members)
        attempts += sum(gang.entry.attempts for gang in queue.gangs.units() if gang.entry and gang not in failing)
        return (self.server.version, process.number, attempts, queue.readings.in_flight_count, process.queued_writes)

    def _check(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self._report_problem(problem)

    def _report_problem(self, problem: str) -> None:
        self.network.log(f"PROBLEM: {problem}")
        self._outcome.problems.append(problem)

    def _on_placed(self, uid: str) -> None:
        self.cluster_steps.gangs.placed(uid)

    def _on_bound(self, pod: Pod, client: str) -> None:
        self._run_state.bound[pod.metadata.uid] = pod.spec.node_name
        if client == OPERATOR:
            self._outcome.bound += 1
            self._run_state.ours[pod.metadata.uid] = pod.spec.node_name
            since = self.loop.virtual_now - _MAXIMUM_BINDING_SECONDS
            self._check(check_bind(self.server, self._capacities, pod, self._run_state.ours, since))
            self._check(check_bound_devices(self._device_api, pod))
            self.cluster_steps.gangs.bound(pod)
        elif claim_names(pod):
            self._bound_by_previous_process.add(pod.metadata.uid)
        self._controllers.run(pod)

    def _on_claim_written(self, old: ResourceClaim, new: ResourceClaim, client: str) -> None:
        self._check(check_allocations(self._device_api.claims()))
        self._devices.written(old, new, client)

    def _on_event(self, document: dict[str, object]) -> None:
        if document.get("reason") == "Preempted":
            self._counts.add("evicted")
