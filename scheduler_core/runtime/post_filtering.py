"""PostFilter: plugins that may make room for an infeasible pod.

Follows kube-scheduler v1.37.1 (``RunPostFilterPlugins``): the first plugin that returns Success,
UnschedulableAndUnresolvable or an error ends the point; the reasons of earlier plugins are then dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreemptionExtenders,
)
from scheduler_core.framework.gang_preemptor import GangPostFilter, TriedMember
from scheduler_core.framework.status import Code, Status
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import checked, raised, refused
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_POINT = "postFilter"


@dataclass(frozen=True, slots=True)
class PostFilterOutcome:
    """Combined result of PostFilter.

    Attributes:
        status: Success, a rejection with the reasons of all plugins, or an error.
        nominated_node: The nominated node; "" clears the nomination, None leaves it unchanged.
    """

    status: Status
    nominated_node: str | None = None


def run_post_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
) -> PostFilterOutcome:
    """Run PostFilter; never raises, because the attempt has failed already and only its message may change."""
    walk, recorder = _PostFilterRun(instance, pod), state.recorder
    for plugin in _called(instance, pod):
        try:
            code = walk.take(plugin, plugin.post_filter(state, pod, nodes, diagnosis))
            recorder.plugin_left((plugin.name, code, recorder.now()))
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
    """Run PostFilter like :func:`run_post_filters`, with extenders that plugins may call."""
    walk, recorder = _PostFilterRun(instance, pod), state.recorder
    for plugin in _called(instance, pod):
        try:
            code = walk.take(plugin, await plugin.post_filter_with(state, pod, diagnosis, extenders))
            recorder.plugin_left((plugin.name, code, recorder.now()))
        except Exception as fault:
            walk.fail(plugin, fault)
        if walk.ended is not None:
            break
    return walk.outcome()


def run_gang_post_filters(
    instance: FrameworkInstance, members: Sequence[TriedMember], group_uid: str
) -> dict[str, tuple[PodInfo, ...]]:
    """Run the PostFilter plugins that help gangs; never raises, because the gang is rejected already.

    Returns:
        The members that may become feasible, by plugin; plugins without any are left out.
    """
    found: dict[str, tuple[PodInfo, ...]] = {}
    for plugin in instance.post_filter:
        if not isinstance(plugin, GangPostFilter):
            continue
        try:
            helped = tuple(plugin.post_filter_for_gang(members, group_uid))
        except Exception as fault:
            raised(plugin.name, _POINT, members[0].pod, fault)
            continue
        if helped:
            found[plugin.name] = helped
    return found


def preview_post_filters(
    instance: FrameworkInstance, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
) -> tuple[PostFilterOutcome, PostFilterPreview | None]:
    """Return what PostFilter would return and do, without changing anything.

    Returns:
        The outcome, without plugins that give no preview; and the first preview that has candidates, None if there is
        none.
    """
    previews: list[PostFilterPreview] = []
    released: tuple[str, ...] = ()
    walk = _PostFilterRun(instance, pod)
    for plugin in _called(instance, pod):
        try:
            preview = plugin.preview(state, pod, nodes, diagnosis)
            if preview is not None:
                if preview.candidates:
                    previews.append(preview)
                released += preview.released
                walk.take(plugin, preview.result)
        except Exception as fault:
            walk.fail(plugin, fault)
        if walk.ended is not None:
            break
    outcome = walk.outcome()
    if previews or released:
        first = previews[0] if previews else PostFilterPreview(PostFilterResult(outcome.status))
        return outcome, replace(first, released=released)
    return outcome, None


def _called(instance: FrameworkInstance, pod: PodInfo) -> Sequence[PostFilterPlugin]:
    plugins = instance.post_filter
    return [plugin for plugin in plugins if plugin.handles_resizes] if pod.pod.has_deferred_resize else plugins


class _PostFilterRun:
    """Combines the results of the plugins; without plugins, a rejection that clears the nomination.

    Attributes:
        ended: The outcome, if no more plugins are to be called.
    """

    def __init__(self, instance: FrameworkInstance, pod: PodInfo) -> None:
        self.ended: PostFilterOutcome | None = None
        self._pod = pod
        self._nominated: str | None = None if instance.post_filter else ""
        self._rejection = Status(Code.UNSCHEDULABLE)

    def take(self, plugin: PostFilterPlugin, answer: object) -> Code:
        """Add the result of one plugin.

        Returns:
            Its status code.

        Raises:
            PluginError: It has the wrong type.
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
        """Record that a plugin raised, or returned a wrong type."""
        self.ended = PostFilterOutcome(raised(plugin.name, _POINT, self._pod, fault))

    def outcome(self) -> PostFilterOutcome:
        """Return the combined result."""
        return self.ended or PostFilterOutcome(self._rejection, self._nominated)
