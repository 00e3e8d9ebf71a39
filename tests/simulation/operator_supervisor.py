"""Restarts the operator, and holds the profiles that it should serve.

Requests that a killed operator sent still arrive; its successor starts from the API server's state alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from scheduler_core.errors import ConfigError
from scheduler_core.framework.queued_pod import Place
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.inhabitants import one_of
from tests.simulation.operator_life import LifeOptions, OperatorLife
from tests.simulation.profiles import BAD_REVISION, PROFILES, REVISIONS
from tests.simulation.virtual_loop import VirtualLoop

_STOP_SECONDS = 4.0

MakeLife = Callable[[LifeOptions], OperatorLife]


class OperatorSupervisor:
    """Sequence of lives of the operator.

    Attributes:
        life: The running or the last one.
        profiles: The wanted revision by scheduler name.
        complaints: Problems found here.
    """

    def __init__(self, loop: VirtualLoop, counts: FaultCounts, seed: int, make: MakeLife) -> None:
        self._loop = loop
        self._counts = counts
        self._make = make
        self._rng = random.Random(f"{seed}/supervisor")
        self._seed = seed
        self._lives = 0
        self.is_restarting = False
        self.profiles: dict[str, str] = {name: one_of(self._rng, REVISIONS) for name in PROFILES}
        self.complaints: list[str] = []
        self.life = self._next_life()

    def _next_life(self) -> OperatorLife:
        self._lives += 1
        rng = self._rng
        options = LifeOptions(
            self._lives, self._seed, one_of(rng, (0.0, 0.0, 0.0001, 0.001)), bind_limit=one_of(rng, (2, 8, 32))
        )
        return self._make(options)

    def begin(self) -> None:
        """Start the operator."""
        self.life.start(self.profiles)

    def held(self) -> dict[str, str]:
        """Return the nodes of pods that are reserved and not known to be bound, by UID."""
        return {uid: hold.node_name for uid, hold in self.life.ledger.holds.items()}

    # -- restarts -----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the operator, as SIGKILL does."""
        if self.is_restarting:
            return
        self._counts.add("operator killed")
        self.is_restarting = True
        self.life.kill()
        self._loop.call_later(0.2 + 2.0 * self._rng.random(), self._restart)

    def stop(self) -> None:
        """Stop the operator, as SIGTERM does."""
        if self.is_restarting or not self.life.is_scheduling:
            return
        self._counts.add("operator stopped")
        self.is_restarting = True
        self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        await self.life.stop(_STOP_SECONDS)
        open_attempts = {instance.name: instance.in_flight for instance in self.life.instances if instance.in_flight}
        if open_attempts:
            self.complaints.append(f"the operator stopped with attempts under way: {open_attempts}")
        self._restart()

    def _restart(self) -> None:
        self.life = self._next_life()
        self.life.start(self.profiles)
        self.is_restarting = False

    # -- profiles -----------------------------------------------------------------------------------------------

    @property
    def _serves(self) -> bool:
        return self.life.is_scheduling and not self.life.is_over

    def swap_profile(self, rng: random.Random) -> None:
        """Edit a profile."""
        name = one_of(rng, PROFILES)
        if name not in self.profiles:
            return
        self.profiles[name] = one_of(rng, [each for each in REVISIONS if each != self.profiles[name]])
        if self._serves:
            self._counts.add("profile swapped")
            self.life.activate((name, self.profiles[name]))

    def offer_bad_profile(self, rng: random.Random) -> None:
        """Edit a profile so that it cannot be built."""
        name = one_of(rng, PROFILES)
        if not self._serves:
            return
        before = self.life.scheduler.context.profiles.get(name)
        try:
            self.life.activate((name, BAD_REVISION))
        except ConfigError:
            self._counts.add("profile refused")
        if self.life.scheduler.context.profiles.get(name) is not before:
            self.complaints.append(f"a bad edit of profile {name} replaced the good one")

    def withdraw_profile(self, name: str) -> bool:
        """Delete a profile; return whether it existed."""
        if self.profiles.pop(name, None) is None:
            return False
        if self._serves:
            self._counts.add("profile withdrawn")
            self.life.scheduler.withdraw(name)
        return True

    def nominated_profile(self) -> str:
        """The profile of a nominated pod outside the gang whose cycle waits for an extender; "" for none."""
        context = self.life.scheduler.context
        if not context.suspension.is_on:
            return ""
        tried = [gang for gang in context.queue.gangs if gang.entry and gang.entry.place is Place.IN_FLIGHT]
        nominator = context.queue.nominator
        for node_name in nominator.nodes() if tried else ():
            for info in nominator.nominated_pods(node_name):
                if context.queue.gangs.of_uid(info.uid) not in tried:
                    return info.pod.spec.scheduler_name
        return ""

    def return_profile(self, name: str) -> None:
        """Create a profile again."""
        if name not in self.profiles:
            self.profiles[name] = REVISIONS[0]
            if self._serves:
                self.life.activate((name, self.profiles[name]))
