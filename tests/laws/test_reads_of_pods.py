"""Law of reads: an older watch event does not override the result of a read.

A watch delivers each state of each pod in order and late, and a read returns the current state. The scheduler's state
of a pod is never older than what it has read or received.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from scheduler_core.errors import ConflictError, NotFoundError
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.ports import Binding
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.gangs import group, members
from tests.support.recording_writer import RecordingWriter
from tests.support.scheduling import Rig, profile
from tests.support.virtual_clock import VirtualClock

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("web", "train-0", "train-1")
WAITING, BOUND, TERMINATED, DELETED = range(4)
STEPS = ("label", "label", "delete", "end")


def stage_of(state: Pod | None) -> int:
    if state is None:
        return DELETED
    if state.is_terminal:
        return TERMINATED
    return BOUND if state.spec.node_name else WAITING


class History(RecordingWriter):
    """A cluster that stores every state of three pods."""

    def __init__(self) -> None:
        super().__init__()
        first = (pod("web", requests={"cpu": "1"}), *members(2))
        self.states: dict[str, list[Pod | None]] = {each.metadata.name: [each] for each in first}
        self.read: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.takes_effect = True

    async def bind(self, binding: Binding) -> None:
        """Bind a pod, or acknowledge the bind without effect."""
        current = self.states[binding.name][-1]
        if current is None:
            raise NotFoundError("gone")
        if current.spec.node_name or current.metadata.deletion_timestamp is not None:
            raise ConflictError("cannot be bound")
        if self.takes_effect:
            spec = replace(current.spec, node_name=binding.node_name)
            self.states[binding.name].append(replace(current, spec=spec))

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the current state."""
        self.read[name] = len(self.states[name]) - 1
        return self.states[name][-1]

    def change(self, name: str, kind: str) -> None:
        """Append a state that may follow the current one."""
        states = self.states[name]
        current = states[-1]
        if current is None:
            return
        meta = current.metadata
        if kind == "label":
            states.append(replace(current, metadata=replace(meta, labels={**meta.labels, "n": str(len(states))})))
        elif kind == "end":
            states.append(replace(current, status=replace(current.status, phase="Succeeded")))
        elif meta.deletion_timestamp is None and current.spec.node_name:
            states.append(replace(current, metadata=replace(meta, deletion_timestamp=WHEN)))
        else:
            states.append(None)


class ReadMachine(RuleBasedStateMachine):
    """A gang of two, a pod, and a late watch."""

    def __init__(self) -> None:
        super().__init__()
        self.history, self.clock = History(), VirtualClock()
        self.made = Rig(
            Scheduler(self.clock, self.history, None, in_tree_registry(), default_plugins()), self.clock, self.history
        )
        self.made.serve(profile())
        self.made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
        self.made.scheduler.group_feed.group_changed(group(min_member=2))
        self.made.add(node("n0"))
        self.delivered = dict.fromkeys(NAMES, 0)
        for states in self.history.states.values():
            assert states[0] is not None
            self.made.add(states[0])

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from(STEPS))
    def change(self, name: str, kind: str) -> None:
        self.history.change(name, kind)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3))
    def deliver(self, name: str, count: int) -> None:
        feed, states = self.made.scheduler.feed, self.history.states[name]
        for _ in range(count):
            at = self.delivered[name]
            if at + 1 == len(states):
                return
            old, new = states[at], states[at + 1]
            assert old is not None
            self.delivered[name] = at + 1
            if new is None:
                feed.pod_deleted(old)
            else:
                feed.pod_updated(old, new)

    @rule(takes_effect=st.booleans())
    def work(self, takes_effect: bool) -> None:
        self.history.takes_effect = takes_effect
        asyncio.run(self._work())
        self.clock.advance(16.0)

    async def _work(self) -> None:
        while (queued := self.made.queue.pop()) is not None:
            if isinstance(queued, QueuedGang):
                found = await self.made.scheduler.cycles.gangs.schedule(queued)
            else:
                attempt = self.made.scheduler.cycles.pods.schedule(queued)
                found = [] if attempt is None else [attempt]
            await asyncio.gather(*(self.made.scheduler.cycles.binding.bind(each) for each in found))

    @rule()
    def settle(self) -> None:
        asyncio.run(self.made.scheduler.unconfirmed_pods.settle(self.made.scheduler.feed, 15.0))

    @invariant()
    def no_older_state_is_restored(self) -> None:
        """A pod that was seen as bound, terminated or deleted does not wait, and has no node if it is terminated."""
        queue, cache = self.made.queue, self.made.context.cache
        for name, states in self.history.states.items():
            uid = f"uid-of-default-{name}"
            seen = states[max(self.delivered[name], self.history.read[name])]
            stage, gang = stage_of(seen), queue.gangs.of_uid(uid)
            if stage >= BOUND:
                assert queue.find(uid) is None
            if stage >= TERMINATED:
                assert cache.get(uid) is None
                assert gang is None or uid not in gang.placed
            if stage == DELETED:
                assert gang is None
            if seen is not None and seen.metadata.deletion_timestamp is not None:
                assert gang is None or uid not in gang.placed | gang.waiting.keys()

    @invariant()
    def scheduled_members_are_in_the_cache(self) -> None:
        """A member that counts as scheduled is on a node in the cache."""
        for gang in self.made.queue.gangs:
            assert all(self.made.context.cache.get(uid) is not None for uid in gang.placed)

    @invariant()
    def reads_are_bounded(self) -> None:
        """No read of a pod is stored after the pod's last state was delivered."""
        late = sum(self.delivered[name] + 1 < len(states) for name, states in self.history.states.items())
        assert len(self.made.scheduler.feed.reads) <= late <= len(NAMES)

    def teardown(self) -> None:
        self.made.queue.close()


ReadMachine.TestCase.settings = settings(stateful_step_count=30)
TestReads = ReadMachine.TestCase
