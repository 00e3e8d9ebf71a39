"""The law of reads: what a read of the API server established is not undone by what the watch delivers later.

A watch delivers each state of each pod, in order and late; a read returns the present one. What the scheduler believes
of a pod is never behind what it has read or what was delivered to it.
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
WAITING, BOUND, ENDED, GONE = range(4)
STEPS = ("label", "label", "delete", "end")


def stage_of(state: Pod | None) -> int:
    if state is None:
        return GONE
    if state.is_terminal:
        return ENDED
    return BOUND if state.spec.node_name else WAITING


class History(RecordingWriter):
    """A cluster that records every state of three pods."""

    def __init__(self) -> None:
        super().__init__()
        first = (pod("web", requests={"cpu": "1"}), *members(2))
        self.states: dict[str, list[Pod | None]] = {each.metadata.name: [each] for each in first}
        self.read: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.takes_effect = True

    async def bind(self, binding: Binding) -> None:
        """Bind a pod, or only answer so."""
        present = self.states[binding.name][-1]
        if present is None:
            raise NotFoundError("gone")
        if present.spec.node_name or present.metadata.deletion_timestamp is not None:
            raise ConflictError("cannot be bound")
        if self.takes_effect:
            spec = replace(present.spec, node_name=binding.node_name)
            self.states[binding.name].append(replace(present, spec=spec))

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The last state."""
        del namespace
        self.read[name] = len(self.states[name]) - 1
        return self.states[name][-1]

    def change(self, name: str, how: str) -> None:
        """Append a state that may follow the last one."""
        states = self.states[name]
        present = states[-1]
        if present is None:
            return
        meta = present.metadata
        if how == "label":
            states.append(replace(present, metadata=replace(meta, labels={**meta.labels, "n": str(len(states))})))
        elif how == "end":
            states.append(replace(present, status=replace(present.status, phase="Succeeded")))
        elif meta.deletion_timestamp is None and present.spec.node_name:
            states.append(replace(present, metadata=replace(meta, deletion_timestamp=WHEN)))
        else:
            states.append(None)


class ReadMachine(RuleBasedStateMachine):
    """A gang of two, a pod, and a watch that is late."""

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

    @rule(name=st.sampled_from(NAMES), how=st.sampled_from(STEPS))
    def change(self, name: str, how: str) -> None:
        self.history.change(name, how)

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
    def nothing_is_undone(self) -> None:
        """No pod that was seen bound, ended or deleted waits; none that was seen ended or deleted has a node."""
        queue, cache = self.made.queue, self.made.context.cache
        for name, states in self.history.states.items():
            uid = f"uid-of-default-{name}"
            seen = states[max(self.delivered[name], self.history.read[name])]
            stage, gang = stage_of(seen), queue.gangs.of_uid(uid)
            if stage >= BOUND:
                assert queue.find(uid) is None
            if stage >= ENDED:
                assert cache.get(uid) is None
                assert gang is None or uid not in gang.placed
            if stage == GONE:
                assert gang is None
            if seen is not None and seen.metadata.deletion_timestamp is not None:
                assert gang is None or uid not in gang.placed | gang.waiting.keys()

    @invariant()
    def a_gang_counts_what_has_a_node(self) -> None:
        """A member that counts as scheduled is on a node in the cache."""
        for gang in self.made.queue.gangs:
            assert all(self.made.context.cache.get(uid) is not None for uid in gang.placed)

    @invariant()
    def reads_are_bounded(self) -> None:
        """No read of a pod is stored after its last state was delivered."""
        late = sum(self.delivered[name] + 1 < len(states) for name, states in self.history.states.items())
        assert len(self.made.scheduler.feed.reads) <= late <= len(NAMES)

    def teardown(self) -> None:
        self.made.queue.close()


ReadMachine.TestCase.settings = settings(stateful_step_count=30)
TestReads = ReadMachine.TestCase
