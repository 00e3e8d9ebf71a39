"""PostFilter: plugins that may make room for an infeasible pod.

Follows kube-scheduler v1.37.1 (``RunPostFilterPlugins``): the first plugin that returns Success,
UnschedulableAndUnresolvable or an error ends the point; the reasons of earlier plugins are then dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    PlannedPostFilter,
    PostFilterAction,
    PostFilterPlugin,
    PostFilterPreview,
    PostFilterResult,
    PreemptionExtenders,
)
from scheduler_core.framework.gang_preemptor import (
    GangPostFilter,
    GangPreemptor,
    GangRelease,
    PlannedGangPostFilter,
    TriedMember,
)
from scheduler_core.framework.status import SUCCESS, Code, Status, unschedulable
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
        is_delayed: Whether plugins that preempt are not called yet.
    """

    status: Status
    nominated_node: str | None = None
    is_delayed: bool = False


@dataclass(frozen=True, slots=True)
class PlannedOutcome:
    """What PostFilter returns, and what is still to be done for it."""

    outcome: PostFilterOutcome
    actions: tuple[tuple[str, PostFilterAction], ...] = ()


def plans(plugin: PostFilterPlugin) -> bool:
    """Return whether a plugin plans before it acts, and was not changed to act at once."""
    return isinstance(plugin, PlannedPostFilter) and type(plugin).post_filter is PlannedPostFilter.post_filter


def plan_post_filters(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    nodes: NodeColumns,
    diagnosis: Diagnosis,
    *,
    delay: str = "",
) -> PlannedOutcome:
    """Run PostFilter up to :func:`carry_out`; never raises, because the attempt has failed already.

    A plugin that does not plan acts at once, after what plugins before it have planned.

    Args:
        delay: Why plugins that preempt are not called yet; "" to call them.
    """
    walk, recorder = _PostFilterRun(instance, pod), state.recorder
    actions: list[tuple[str, PostFilterAction]] = []
    for plugin in _called(instance, pod):
        try:
            if delay and isinstance(plugin, GangPreemptor):
                result = walk.delayed(delay)
            elif isinstance(plugin, PlannedPostFilter) and plans(plugin):
                result, action = plugin.plan(state, pod, nodes, diagnosis)
                actions.append((plugin.name, action))
            else:
                done, actions = actions, []
                carry_out(instance, pod, PlannedOutcome(PostFilterOutcome(SUCCESS), tuple(done)))
                result = plugin.post_filter(state, pod, nodes, diagnosis)
            code = walk.take(plugin, result)
            recorder.plugin_left((plugin.name, code, recorder.now()))
        except Exception as fault:
            walk.fail(plugin, fault)
        if walk.ended is not None:
            break
    return PlannedOutcome(walk.outcome(), tuple(actions))


def carry_out(instance: FrameworkInstance, pod: PodInfo, planned: PlannedOutcome) -> PostFilterOutcome:
    """Do what the plugins planned, and return the outcome; never raises."""
    for name, action in planned.actions:
        plugin = instance.plugins[name]
        try:
            if isinstance(plugin, PlannedPostFilter):
                plugin.carry_out(pod, action)
        except Exception as fault:
            return PostFilterOutcome(raised(name, _POINT, pod, fault))
    return planned.outcome


async def run_post_filters_with(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    diagnosis: Diagnosis,
    extenders: PreemptionExtenders,
    *,
    delay: str = "",
) -> PostFilterOutcome:
    """Run PostFilter, with extenders that plugins may call; plugins act at once."""
    walk, recorder = _PostFilterRun(instance, pod), state.recorder
    for plugin in _called(instance, pod):
        try:
            if delay and isinstance(plugin, GangPreemptor):
                result = walk.delayed(delay)
            else:
                result = await plugin.post_filter_with(state, pod, diagnosis, extenders)
            code = walk.take(plugin, result)
            recorder.plugin_left((plugin.name, code, recorder.now()))
        except Exception as fault:
            walk.fail(plugin, fault)
        if walk.ended is not None:
            break
    return walk.outcome()


def plans_for_gang(plugin: GangPostFilter) -> bool:
    """Return whether a plugin plans for gangs before it acts, and was not changed to act at once."""
    own = type(plugin).post_filter_for_gang
    return isinstance(plugin, PlannedGangPostFilter) and own is PlannedGangPostFilter.post_filter_for_gang


@dataclass(frozen=True, slots=True)
class HelpedMembers:
    """What PostFilter plugins do for a gang.

    Attributes:
        members: The members that may become feasible, by plugin; plugins without any are left out.
    """

    members: dict[str, tuple[PodInfo, ...]]
    planned: dict[str, Sequence[GangRelease]]


def plan_gang_post_filters(
    instance: FrameworkInstance, members: Sequence[TriedMember], group_uid: str
) -> HelpedMembers:
    """Run the PostFilter plugins that help gangs, up to :func:`carry_out_for_gang`; never raises."""
    found: dict[str, tuple[PodInfo, ...]] = {}
    planned: dict[str, Sequence[GangRelease]] = {}
    for plugin in instance.post_filter:
        # Plugins of both kinds may be of one class.
        helper: object = plugin
        try:
            if isinstance(helper, PlannedGangPostFilter) and plans_for_gang(helper):
                planned[plugin.name] = helper.plan_for_gang(members, group_uid)
                helped = tuple(pod for pod, _ in planned[plugin.name])
            elif isinstance(helper, GangPostFilter):
                helped = tuple(helper.post_filter_for_gang(members, group_uid))
            else:
                continue
        except Exception as fault:
            raised(plugin.name, _POINT, members[0].pod, fault)
            continue
        if helped:
            found[plugin.name] = helped
    return HelpedMembers(found, {name: each for name, each in planned.items() if each})


def carry_out_for_gang(
    instance: FrameworkInstance, planned: Mapping[str, Sequence[GangRelease]], group_uid: str
) -> None:
    """Do what the plugins planned; never raises, because the gang is rejected already."""
    for name, releases in planned.items():
        plugin: object = instance.plugins[name]
        try:
            if isinstance(plugin, PlannedGangPostFilter):
                plugin.carry_out_for_gang(releases, group_uid)
        except Exception as fault:
            raised(name, _POINT, releases[0][0], fault)


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
    """Combines the results of the plugins; without plugins, a rejection that clears the nomination."""

    def __init__(self, instance: FrameworkInstance, pod: PodInfo) -> None:
        self.ended: PostFilterOutcome | None = None
        self._pod = pod
        self._nominated: str | None = None if instance.post_filter else ""
        self._rejection = Status(Code.UNSCHEDULABLE)
        self._is_delayed = False

    def delayed(self, reason: str) -> PostFilterResult:
        """Return the result in place of that of a plugin that preempts."""
        self._is_delayed = True
        return PostFilterResult(unschedulable(reason))

    def take(self, plugin: PostFilterPlugin, answer: object) -> Code:
        """Add the result of one plugin; return its code. Raises PluginError: the result has the wrong type."""
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
        return self.ended or PostFilterOutcome(self._rejection, self._nominated, self._is_delayed)
