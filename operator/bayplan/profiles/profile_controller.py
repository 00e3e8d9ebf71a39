"""The reconciler of SchedulerProfiles and PluginConfigs.

Level-based: every change leads to the same step over all objects.

    event ─▶ object store ─▶ desired state (validated) ─▶ build ─▶ swap ─▶ applied profiles ─▶ revisions, log, statuses

The step up to the applied profiles runs in the event loop without awaiting, so that a slow API server never delays a
profile. Storing revisions and writing statuses follow in a task that retries on its own, because the watch events that
caused them are not delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from bayplan.extenders.http_extender import extender_states
from bayplan.kube.timing import Backoff
from bayplan.profiles.desired_profiles import (
    DesiredPluginConfig,
    PluginConfigValidation,
    ProfileOwnership,
    desired_state,
)
from bayplan.profiles.profile_rollout import ProfileRollout, ShadowRollout
from bayplan.profiles.profile_status import (
    AppliedProfile,
    ProfileFindings,
    ProfileReading,
    Progress,
    contested_pods,
    plugin_config_status,
    profile_status,
    reading_of,
    running_shadow,
)
from bayplan.profiles.revision_store import RevisionHistory, RevisionStore, origin_of
from bayplan.profiles.status_publisher import (
    StatusPublisher,
    StatusSource,
    StatusWriter,
    plugin_config_events,
    profile_events,
)
from bayplan.resources.conditions import ConditionState, problems_message
from bayplan.resources.object_store import Body, ObjectStore
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import CustomResource, change_cause
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.metrics.scheduler_metrics import ProfileRecord
from scheduler_core.ports import Clock
from scheduler_core.queueing.sub_queues import QueueCounts
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

RECONCILED, PUBLISHED = "schedulerprofiles", "statuses"
_STEPS = {RECONCILED: "reconciling profiles", PUBLISHED: "writing revisions and statuses"}
_LOOK_SECONDS = 2.0
_FIRST_RETRY_SECONDS = 0.2
_LONGEST_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ControllerPorts:
    """The ports of the controller; ``statuses_due`` is set when statuses may differ from what was written."""

    revisions: RevisionStore
    statuses: StatusWriter
    clock: Clock
    statuses_due: asyncio.Event = field(default_factory=asyncio.Event)
    on_served_elsewhere: Callable[[], None] = lambda: None


class ProfileController:
    """Reconciler of SchedulerProfiles and PluginConfigs.

    Attributes:
        reconciles: Number of reconciles of profiles (:data:`RECONCILED`) and of writes of their results
            (:data:`PUBLISHED`), by result: ``success``, ``error`` (a request refused or lost) or ``fault`` (a bug).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        ports: ControllerPorts,
        *,
        allow_default_scheduler: bool = False,
        served: ProfileOwnership | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = ports.clock
        self._allow_default_scheduler = allow_default_scheduler
        self._served = served or ProfileOwnership(None)
        self._on_served_elsewhere = ports.on_served_elsewhere
        self.history = RevisionHistory(ports.revisions)
        self._validation = PluginConfigValidation(scheduler.registry)
        self._live = ProfileRollout(scheduler, self.history.last_good)
        self._shadows = ShadowRollout(scheduler)
        self._publisher = StatusPublisher(ports.statuses, ports.clock, scheduler.context.writer.record)
        self._stores: dict[type[CustomResource], ObjectStore] = {
            SchedulerProfile: ObjectStore(),
            PluginConfig: ObjectStore(),
        }
        self._profiles: tuple[AppliedProfile, ...] = ()
        self._plugin_configs: tuple[DesiredPluginConfig, ...] = ()
        self._rejected: dict[str, str] = {}
        # Start at 0: a rate over a counter that appears late misses its first increase.
        self.reconciles = Counter(dict.fromkeys(product(_STEPS, ("success", "error", "fault")), 0))
        self._objects_changed = asyncio.Event()
        self._to_publish = ports.statuses_due

    # -- observed objects ---------------------------------------------------------------------------------------

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        if self._stores[kind].seen(body):
            self._objects_changed.set()

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        if self._stores[kind].gone(body):
            self._objects_changed.set()

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        if self._stores[kind].listed(bodies, resource_version):
            self._objects_changed.set()

    def bodies(self, kind: type[CustomResource]) -> list[Body]:
        """Return the stored objects of a kind, valid or not."""
        return self._stores[kind].bodies()

    # -- reconciling --------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Validate all objects and make the scheduler run the result, in one step between two cycles."""
        self._objects_changed.clear()
        desired = desired_state(
            self._stores[SchedulerProfile].bodies(),
            self._stores[PluginConfig].bodies(),
            self._validation,
            allow_default_scheduler=self._allow_default_scheduler,
            selection=self._served.selection,
        )
        self._scheduler.context.profiles.claim(desired.claimed)
        before = _uids(self._profiles)
        live = self._live.apply(desired.of_live_profiles())
        for applied in live:
            # Before anything else that may raise: a repeated reconcile does not return a revision that is live already.
            self._note_revision(applied)
        shadows = self._shadows.apply(desired.shadows)
        rolled_out = (*live, *shadows)
        order = {profile.meta.uid: place for place, profile in enumerate(desired.profiles)}
        self._profiles = tuple(sorted(rolled_out, key=lambda each: order[each.desired.meta.uid]))
        self._plugin_configs = desired.plugin_configs
        for uid in before - _uids(self._profiles):
            self.history.forget(uid)
        for applied in shadows:
            self._note_revision(applied)
        self.reconciles[RECONCILED, "success"] += 1
        if self._served.update(desired):
            self._on_served_elsewhere()
        self._log_rejected()
        self._to_publish.set()

    def _note_revision(self, applied: AppliedProfile) -> None:
        """Note a revision that went live, and the change cause of the live one; :meth:`publish` stores both."""
        desired, live = applied.desired, applied.findings.live_revision
        body = self._body(desired.meta.name)
        if applied.activated is not None:
            origin = origin_of(body, applied.activated, self._stores[PluginConfig].bodies())
            self.history.note(desired.meta, applied.activated, origin)
        config = desired.config
        if config is not None and not applied.findings.problems and config.revision() == live:
            # `kubectl annotate` may set the cause after the edit.
            self.history.explain(desired.meta.uid, live, change_cause(body["metadata"]))

    def _body(self, name: str) -> Body:
        body = self._stores[SchedulerProfile].body("", name)
        assert body is not None  # only stored objects are validated
        return body

    async def publish(self, *, counts_too: bool = False) -> None:
        """Store the revisions that went live and write the statuses that changed, all before a failure is raised."""
        try:
            await self.history.save()
        finally:
            await self._publisher.publish(self._sources(), counts_too=counts_too)
        self.reconciles[PUBLISHED, "success"] += 1

    def conditions(self) -> Iterator[ConditionState]:
        return self._publisher.conditions()

    def readings(self) -> Iterator[ProfileReading]:
        for applied in self._profiles:
            meta = applied.desired.meta
            status = self._publisher.status_of(meta.uid)
            yield reading_of(applied, applied.desired.status if status is None else status, self.history.of(meta.uid))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retrying(self._reconcile_when_changed, RECONCILED))
            group.create_task(self._retrying(self._publish_when_due, PUBLISHED))

    async def _reconcile_when_changed(self) -> None:
        await self._objects_changed.wait()
        try:
            if self._served.has_new_profiles(self._stores[SchedulerProfile].bodies()):
                # Another process has stored their revisions until now.
                await self.history.load()
            self.reconcile()
        except Exception:
            self._objects_changed.set()
            raise

    async def _publish_when_due(self) -> None:
        timer = self._clock.call_later(_LOOK_SECONDS, self._to_publish.set)
        try:
            await self._to_publish.wait()
        finally:
            timer.cancel()
        self._to_publish.clear()
        await self.publish()

    async def _retrying(self, step: Callable[[], Awaitable[None]], resource: str) -> None:
        what = _STEPS[resource]
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
        logged = ""
        while True:
            try:
                await step()
            except SchedulerCoreError as error:
                if str(error) != logged:
                    log.warning("%s failed and is retried: %s", what, error, extra={"result": "error"})
                logged = str(error)
                self.reconciles[resource, "error"] += 1
            except Exception as error:
                # The next try or an edit may succeed; if the task ended, no profile would change again.
                if repr(error) != logged:
                    log.exception("%s failed unexpectedly and is retried; please report this bug", what)
                logged = repr(error)
                self.reconciles[resource, "fault"] += 1
            else:
                logged = ""
                backoff.reset()
                continue
            self._to_publish.set()
            await self._clock.sleep(backoff.next_delay())

    # -- reporting ----------------------------------------------------------------------------------------------

    def _log_rejected(self) -> None:
        """Log each rejected spec once per process; the event is recorded once altogether."""
        messages: dict[str, str] = {}
        for applied in self._profiles:
            if not applied.findings.problems:
                continue
            meta = applied.desired.meta
            messages[meta.uid] = problems_message(applied.findings.problems)
            if self._rejected.get(meta.uid) != messages[meta.uid]:
                log.warning("profile %s: spec rejected: %s", meta.name, messages[meta.uid])
        self._rejected = messages

    def _sources(self) -> list[StatusSource]:
        counts = self._scheduler.context.queue.readings.counts()
        sources = [
            StatusSource(
                SchedulerProfile.definition.plural,
                applied.desired.meta,
                applied.desired.status,
                partial(profile_status, applied.findings, self._progress(applied.findings, counts)),
                partial(profile_events, applied.desired.meta),
            )
            for applied in self._profiles
        ]
        sources += [
            StatusSource(
                PluginConfig.definition.plural,
                config.meta,
                config.status,
                partial(plugin_config_status, config),
                partial(plugin_config_events, config.meta),
            )
            for config in self._plugin_configs
        ]
        return sources

    def _progress(self, findings: ProfileFindings, counts: Mapping[str, QueueCounts]) -> Progress:
        """Return what the profile has done; all zero if it does not run."""
        if findings.shadow is not None:
            return Progress(shadow=running_shadow(self._scheduler, findings.scheduler_name))
        name = findings.scheduler_name
        record = self._scheduler.context.metrics.records.get(name)
        if not findings.holds_name or record is None:
            record = ProfileRecord()
        waiting = counts.get(name, QueueCounts()) if findings.live_revision else QueueCounts()
        live = self._scheduler.context.profiles.get(name) if findings.live_revision else None
        return Progress(
            # A copy: the status may be made after further attempts.
            record=replace(record),
            waiting=waiting,
            contested_pods=contested_pods(self._scheduler.context.contested.current(), name) if live else None,
            extenders=() if live is None else extender_states(live),
        )


def _uids(profiles: Iterable[AppliedProfile]) -> set[str]:
    return {applied.desired.meta.uid for applied in profiles}
