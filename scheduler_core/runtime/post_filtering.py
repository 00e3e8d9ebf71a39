"""PostFilter: plugins that may help a pod which fits nowhere.

Owns the walk and how answers are joined. Must not know what becomes of the outcome. Follows kube-scheduler v1.36.3
(``RunPostFilterPlugins``): the first plugin that succeeds, says for good that nothing helps, or fails ends the point;
the reasons of those before it are then dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PostFilterPlugin, PostFilterPreview, PostFilterResult
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


_Ask = Callable[[PostFilterPlugin], PostFilterResult | None]


def run_post_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
) -> PostFilterOutcome:
    """Run PostFilter; never raises, since the attempt has failed already and only its message is at stake."""

    def ask(plugin: PostFilterPlugin) -> PostFilterResult:
        return checked(plugin.post_filter(state, pod, nodes, diagnosis), PostFilterResult, plugin.name, _POINT)

    return _walk(instance, pod, ask)


def preview_post_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
) -> tuple[PostFilterOutcome, PostFilterPreview | None]:
    """What PostFilter would answer and do, with nothing changed.

    Returns:
        The outcome, without the part of plugins that give no preview; and the preview of the plugin that has
        candidates, None if there is none.
    """
    telling: list[PostFilterPreview] = []

    def ask(plugin: PostFilterPlugin) -> PostFilterResult | None:
        preview = plugin.preview(state, pod, nodes, diagnosis)
        if preview is None:
            return None
        if preview.candidates:
            telling.append(preview)
        return checked(preview.result, PostFilterResult, plugin.name, _POINT)

    return _walk(instance, pod, ask), telling[0] if telling else None


def _walk(instance: FrameworkInstance, pod: PodInfo, ask: _Ask) -> PostFilterOutcome:
    if not instance.post_filter:
        return PostFilterOutcome(Status(Code.UNSCHEDULABLE), "")
    nominated: str | None = None
    rejection = Status(Code.UNSCHEDULABLE)
    for plugin in instance.post_filter:
        try:
            result = ask(plugin)
        except Exception as fault:
            return PostFilterOutcome(raised(plugin.name, _POINT, pod, fault))
        if result is None:
            continue
        status = result.status
        if status.is_success or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return PostFilterOutcome(status.of(plugin.name), result.nominated_node)
        if status.code is Code.ERROR and status.reasons:
            return PostFilterOutcome(status.of(plugin.name))
        if not status.is_rejected:
            return PostFilterOutcome(refused(status, plugin.name, _POINT))
        rejection = replace(
            rejection, reasons=rejection.reasons + status.reasons, plugin=rejection.plugin or plugin.name
        )
        if result.nominated_node is not None:
            nominated = result.nominated_node
    return PostFilterOutcome(rejection, nominated)
