"""PostFilter: plugins that may help a pod which fits nowhere.

Owns the walk and how answers are joined. Must not know what becomes of the outcome. Follows kube-scheduler v1.36.3
(``RunPostFilterPlugins``): the first plugin that succeeds, says for good that nothing helps, or fails ends the point;
the reasons of those before it are then dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import Point
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreemptionExtenders,
)
from scheduler_core.framework.status import Code, Status
from scheduler_core.runtime.answers import checked, raised, refused
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_POINT = "postFilter"


@dataclass(frozen=True, slots=True)
class PostFilterOutcome:
    """What PostFilter leaves.

    Attributes:
        status: Success, a rejection with the reasons of all, or an error.
        nominated_node: The node to be promised; "" takes a promise back, None leaves it.
    """

    status: Status
    nominated_node: str | None = None


def run_post_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
) -> PostFilterOutcome:
    """Run PostFilter; never raises, since the attempt has failed already and only its message is at stake."""
    walk, times = _Walk(instance, pod), state.times
    times.lap(Point.POST_FILTER)
    for plugin in instance.post_filter:
        try:
            code = walk.take(plugin, plugin.post_filter(state, pod, nodes, diagnosis))
            times.lap(times.now())
            times.answered(code)
        except Exception as fault:
            walk.fail(plugin, fault)
        if walk.ended is not None:
            break
    return walk.outcome()


async def run_post_filters_with(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    diagnosis: Diagnosis,
    extenders: PreemptionExtenders,
) -> PostFilterOutcome:
    """Run PostFilter as :func:`run_post_filters` does, with extenders that plugins may ask."""
    walk, times = _Walk(instance, pod), state.times
    times.lap(Point.POST_FILTER)
    for plugin in instance.post_filter:
        try:
            code = walk.take(plugin, await plugin.post_filter_with(state, pod, diagnosis, extenders))
            times.lap(times.now())
            times.answered(code)
        except Exception as fault:
            walk.fail(plugin, fault)
        if walk.ended is not None:
            break
    return walk.outcome()


def preview_post_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
) -> tuple[PostFilterOutcome, PostFilterPreview | None]:
    """What PostFilter would answer and do, with nothing changed.

    Returns:
        The outcome, without the part of plugins that give no preview; and the preview of the plugin that has
        candidates, None if there is none.
    """
    telling: list[PostFilterPreview] = []
    walk = _Walk(instance, pod)
    for plugin in instance.post_filter:
        try:
            preview = plugin.preview(state, pod, nodes, diagnosis)
            if preview is not None:
                if preview.candidates:
                    telling.append(preview)
                walk.take(plugin, preview.result)
        except Exception as fault:
            walk.fail(plugin, fault)
        if walk.ended is not None:
            break
    return walk.outcome(), telling[0] if telling else None


class _Walk:
    """What the plugins asked so far have answered, in one; without plugins, a rejection that takes a promise back.

    Attributes:
        ended: The outcome, when no more plugins are to be asked.
    """

    def __init__(self, instance: FrameworkInstance, pod: PodInfo) -> None:
        self.ended: PostFilterOutcome | None = None
        self._pod = pod
        self._nominated: str | None = None if instance.post_filter else ""
        self._rejection = Status(Code.UNSCHEDULABLE)

    def take(self, plugin: PostFilterPlugin, answer: object) -> Code:
        """Take one plugin's answer.

        Returns:
            Its code.

        Raises:
            PluginError: It is not of the kind that the point asks for.
        """
        result = checked(answer, PostFilterResult, plugin.name, _POINT)
        status = result.status
        if status.is_success or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            self.ended = PostFilterOutcome(status.of(plugin.name), result.nominated_node)
        elif status.code is Code.ERROR and status.reasons:
            self.ended = PostFilterOutcome(status.of(plugin.name))
        elif not status.is_rejected:
            self.ended = PostFilterOutcome(refused(status, plugin.name, _POINT))
        else:
            reasons = self._rejection.reasons + status.reasons
            name = self._rejection.plugin or plugin.name
            self._rejection = replace(self._rejection, reasons=reasons, plugin=name)
            if result.nominated_node is not None:
                self._nominated = result.nominated_node
        return status.code

    def fail(self, plugin: PostFilterPlugin, fault: Exception) -> None:
        """One plugin raised, or answered nonsense."""
        self.ended = PostFilterOutcome(raised(plugin.name, _POINT, self._pod, fault))

    def outcome(self) -> PostFilterOutcome:
        """What all of them answered."""
        return self.ended or PostFilterOutcome(self._rejection, self._nominated)
