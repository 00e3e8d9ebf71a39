"""A Coscheduling plugin with pod groups whose members are in the states that a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from scheduler_core.config.plugin_args import CoschedulingArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import SUCCESS, Code
from scheduler_core.framework.waiting_pods import WaitingPod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.plugins.coscheduling import Coscheduling
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import PodFields, pod
from tests.support.handles import FakeGroup, FakeHandle

EMPTY_DIAGNOSIS = Diagnosis(0, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.bool_), lambda _verdict: SUCCESS)
"""Diagnosis of a cluster without nodes."""


@dataclass
class RecordedWaitingPod(WaitingPod):
    """Pod that waits at Permit and records calls."""

    pod: PodInfo
    node_name: str = "n"
    is_refused: bool = False
    calls: list[str] = field(default_factory=list)

    def pending_plugins(self) -> list[str]:
        """Return the only plugin that the pod waits for."""
        return ["Coscheduling"]

    def allow(self, plugin: str) -> None:
        """Record the call."""
        self.calls.append(f"{plugin} allows")

    def reject(self, plugin: str, reason: str) -> bool:
        """Record the call."""
        self.calls.append(f"{plugin}: {reason}")
        return True

    def preempt(self, plugin: str, reason: str) -> bool:
        """Fail: Coscheduling does not call this."""
        raise AssertionError((plugin, reason))


class CoschedulingStage:
    """Plugin, its handle, and pod groups."""

    def __init__(self, **args: int) -> None:
        self.handle = FakeHandle()
        self.plugin = Coscheduling(CoschedulingArgs(**args), self.handle)
        self.waits: dict[str, RecordedWaitingPod] = {}

    def group(self, name: str = "train", min_member: int = 3, since: float = 1000.0, **fields: Any) -> FakeGroup:
        """Add a group; with *min_member* 0, it has no PodGroup."""
        key = GroupKey(GroupSource.BAYPLAN, "default", name)
        pod_group = PodGroup(key, f"uid-of-{name}", min_member, **fields) if min_member else None
        made = self.handle.groups.by_key[key] = FakeGroup(key, pod_group, since)
        return made

    def member(self, group: FakeGroup, name: str, state: str = "", /, **fields: Unpack[PodFields]) -> PodInfo:
        """Add a member.

        Args:
            state: ``bound``; ``waiting`` or ``rejected`` at Permit; ``queued``; "" for none of these.
        """
        fields["labels"] = {"bayplan.dev/pod-group": group.key.name}
        built = pod(name, **fields)
        info = self.handle.nodes.compile_pod(built)
        group.pods[info.uid] = built
        if state in ("bound", "waiting", "rejected"):
            group.placed[info.uid] = info
        if state in ("waiting", "rejected"):
            wait = self.waits[name] = RecordedWaitingPod(info, is_refused=state == "rejected")
            self.handle.waiting_pods.entries[info.uid] = wait
        if state == "queued":
            group.queued[info.uid] = info
        return info

    def add_members(self, group: FakeGroup, *states: str) -> list[PodInfo]:
        """Add members named a, b, c and so on."""
        return [self.member(group, name, state) for name, state in zip("abcdefghij", states, strict=False)]

    def calls_on_waiting_pods(self) -> dict[str, list[str]]:
        """Return the calls of waiting pods by pod name."""
        return {name: wait.calls for name, wait in self.waits.items() if wait.calls}

    def post_filter_reasons(self, info: PodInfo) -> tuple[str, ...]:
        """Run PostFilter for an infeasible pod and return the reasons of its status."""
        result = self.plugin.post_filter(CycleState(), info, self.handle.nodes, EMPTY_DIAGNOSIS)
        assert (result.status.code, result.nominated_node) == (Code.UNSCHEDULABLE, None)
        return result.status.reasons
