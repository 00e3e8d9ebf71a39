"""A Coscheduling plugin on groups as a test describes them.

Owns the short forms for groups and their members at Permit; nothing is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from scheduler_core.config.plugin_args import CoschedulingArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import SUCCESS, Code
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.plugins.coscheduling import Coscheduling
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import PodFields, pod
from tests.support.handles import FakeGroup, FakeHandle

EMPTY_DIAGNOSIS = Diagnosis(0, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.bool_), lambda _verdict: SUCCESS)
"""Of a cluster without nodes."""


@dataclass
class RecordedWaitingPod:
    """A pod that waits at Permit, with the calls that it got."""

    pod: PodInfo
    node_name: str = "n"
    is_refused: bool = False
    calls: list[str] = field(default_factory=list)

    def pending_plugins(self) -> list[str]:
        """One plugin, until that has allowed the pod."""
        return ["Coscheduling"]

    def allow(self, plugin: str) -> None:
        """Note it."""
        self.calls.append(f"{plugin} allows")

    def reject(self, plugin: str, reason: str) -> bool:
        """Note it."""
        self.calls.append(f"{plugin}: {reason}")
        return True

    def preempt(self, plugin: str, reason: str) -> bool:
        """Nobody should."""
        raise AssertionError((plugin, reason))


class CoschedulingStage:
    """A plugin and groups."""

    def __init__(self, **args: int) -> None:
        self.handle = FakeHandle()
        self.plugin = Coscheduling(CoschedulingArgs(**args), self.handle)
        self.waits: dict[str, RecordedWaitingPod] = {}

    def group(self, name: str = "train", min_member: int = 3, since: float = 1000.0, **asked: Any) -> FakeGroup:
        """Make a group; 0 members at the least stands for no PodGroup."""
        key = GroupKey(GroupSource.BAYPLAN, "default", name)
        described = PodGroup(key, f"uid-of-{name}", min_member, **asked) if min_member else None
        made = self.handle.groups.by_key[key] = FakeGroup(key, described, since)
        return made

    def member(self, group: FakeGroup, name: str, state: str = "", /, **fields: Unpack[PodFields]) -> PodInfo:
        """Add a member.

        Args:
            group: Its group.
            name: Its name.
            state: ``bound``, ``waits`` or ``refused`` at Permit, ``queued``, or nothing of it.
            fields: As for pods.
        """
        fields["labels"] = {"bayplan.dev/pod-group": group.key.name}
        built = pod(name, **fields)
        info = self.handle.nodes.compile_pod(built)
        group.pods[info.uid] = built
        if state in ("bound", "waits", "refused"):
            group.placed[info.uid] = info
        if state in ("waits", "refused"):
            wait = self.waits[name] = RecordedWaitingPod(info, is_refused=state == "refused")
            self.handle.waiting_pods.by_uid[info.uid] = wait
        if state == "queued":
            group.queued[info.uid] = info
        return info

    def add_members(self, group: FakeGroup, *states: str) -> list[PodInfo]:
        """Add members called a, b, c and so on."""
        return [self.member(group, name, state) for name, state in zip("abcdefghij", states, strict=False)]

    def calls_on_waiting_pods(self) -> dict[str, list[str]]:
        """Return the calls on waiting pods, by name."""
        return {name: wait.calls for name, wait in self.waits.items() if wait.calls}

    def post_filter_reasons(self, info: PodInfo) -> tuple[str, ...]:
        """Say that a pod fits nowhere; what PostFilter says of it."""
        result = self.plugin.post_filter(CycleState(), info, self.handle.nodes, EMPTY_DIAGNOSIS)
        assert (result.status.code, result.nominated_node) == (Code.UNSCHEDULABLE, None)
        return result.status.reasons
