"""Restarts the operator, and stores the profiles that it should serve.

A new process starts from the API server's state alone. Requests that a killed process sent still arrive.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from scheduler_core.errors import ConfigError
from scheduler_core.framework.queued_pod import Place
from scheduler_core.runtime.framework_instance import FrameworkInstance
from tests.simulation.cluster_objects import one_of
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.operator_process import OperatorProcess, ProcessOptions
from tests.simulation.profiles import INVALID_REVISION, PROFILES, REVISIONS
from tests.simulation.virtual_loop import VirtualLoop
from tests.support.injected_errors import is_injected

_STOP_SECONDS = 4.0
_REPEAT_SECONDS = 0.2
MakeProcess = Callable[[ProcessOptions], OperatorProcess]


class OperatorSupervisor:
    """Sequence of operator processes.

    Attributes:
        process: The current process, or the last one.
        profiles: The wanted revision by scheduler name.
        problems: Problems found by the supervisor.
    """

    def __init__(self, loop: VirtualLoop, counts: FaultCounts, seed: int, make: MakeProcess) -> None:
        self._loop = loop
        self._counts = counts
        self._make = make
        self._rng = random.Random(f"{seed}/supervisor")
        self._seed = seed
        self._process_count = 0
        self.is_restarting = False
        self.profiles: dict[str, str] = {name: one_of(self._rng, REVISIONS) for name in PROFILES}
        self.problems: list[str] = []
        self.process = self._new_process()

    def _new_process(self) -> OperatorProcess:
        self._process_count += 1
        rng = self._rng
        options = ProcessOptions(
            self._process_count, self._seed, one_of(rng, (0.0, 0.0, 0.0001, 0.001)), bind_limit=one_of(rng, (2, 8, 32))
        )
        process = self._make(options)
        process.on_failed_start = self._start_failed
        return process

    def begin(self) -> None:
        """Start the operator."""
        self.process.start(self.profiles)

    def reserved_nodes(self) -> dict[str, str]:
        """Return the nodes of pods that are reserved or bound but unconfirmed, by UID."""
        return {uid: reservation.node_name for uid, reservation in self.process.ledger.reservations.items()}

    # -- restarts -----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the operator, as SIGKILL does."""
        if self.is_restarting:
            return
        self._counts.add("operator killed")
        self._end_process()

    def _start_failed(self, fault: BaseException) -> None:
        if not is_injected(fault):
            self.problems.append(f"the start of the operator has failed: {fault!r}")
        elif not self.is_restarting:
            self._end_process()

    def _end_process(self) -> None:
        self.is_restarting = True
        self.process.kill()
        self._loop.call_later(0.2 + 2.0 * self._rng.random(), self._restart)

    def stop(self) -> None:
        """Stop the operator, as SIGTERM does."""
        if self.is_restarting or not self.process.is_scheduling:
            return
        self._counts.add("operator stopped")
        self.is_restarting = True
        self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        await self.process.stop(_STOP_SECONDS)
        open_attempts = {instance.name: instance.in_flight for instance in self.process.instances if instance.in_flight}
        if open_attempts:
            self.problems.append(f"the operator stopped with attempts in flight: {open_attempts}")
        self._restart()

    def _restart(self) -> None:
        self.process = self._new_process()
        self.process.start(self.profiles)
        self.is_restarting = False

    # -- profiles -----------------------------------------------------------------------------------------------

    @property
    def _is_serving(self) -> bool:
        return self.process.has_profiles and not self.process.is_over

    def edit_profile(self, rng: random.Random) -> None:
        """Edit a profile."""
        name = one_of(rng, PROFILES)
        if name not in self.profiles:
            return
        self.profiles[name] = one_of(rng, [each for each in REVISIONS if each != self.profiles[name]])
        if self._is_serving:
            self._counts.add("profile edited")
            self._roll_out(self.process, name)

    def apply_invalid_profile(self, rng: random.Random) -> None:
        """Edit a profile so that it cannot be built."""
        name = one_of(rng, PROFILES)
        if not self._is_serving:
            return
        before = self.process.scheduler.context.profiles.get(name)
        try:
            self.process.activate((name, INVALID_REVISION))
        except ConfigError:
            self._counts.add("profile rejected")
        if self.process.scheduler.context.profiles.get(name) is not before:
            self.problems.append(f"an invalid edit of profile {name} replaced the valid revision")

    def delete_profile(self, name: str) -> bool:
        """Delete a profile; return whether it existed."""
        if self.profiles.pop(name, None) is None:
            return False
        if self._is_serving:
            self._counts.add("profile deleted")
            self._roll_out(self.process, name)
        return True

    def nominated_profile(self) -> str:
        """Return the profile of a nominated pod outside the gang whose cycle waits for an extender; "" for none."""
        context = self.process.scheduler.context
        if not context.suspension.is_on:
            return ""
        tried = [gang for gang in context.queue.gangs if gang.entry and gang.entry.place is Place.IN_FLIGHT]
        nominator = context.queue.nominator
        for node_name in nominator.nodes() if tried else ():
            for info in nominator.nominated_pods(node_name):
                if context.queue.gangs.of_uid(info.uid) not in tried:
                    return info.pod.spec.scheduler_name
        return ""

    def create_profile(self, name: str) -> None:
        """Create a profile again, if it does not exist."""
        if name not in self.profiles:
            self.profiles[name] = REVISIONS[0]
            if self._is_serving:
                self._roll_out(self.process, name)

    def _roll_out(self, process: OperatorProcess, name: str) -> None:
        """Make a profile live or withdraw it; after an injected exception again, as the controller of profiles does."""
        if process is not self.process or not self._is_serving:
            return
        before = process.scheduler.context.profiles.get(name)
        try:
            if name in self.profiles:
                process.activate((name, self.profiles[name]))
            else:
                process.scheduler.withdraw(name)
        except Exception as fault:
            if not is_injected(fault):
                raise
            self._loop.call_later(_REPEAT_SECONDS, self._repeat_roll_out, process, name, before)

    def _repeat_roll_out(self, process: OperatorProcess, name: str, before: FrameworkInstance | None) -> None:
        # The controller changes nothing if what it wants is live.
        if process.scheduler.context.profiles.get(name) is before:
            self._roll_out(process, name)
