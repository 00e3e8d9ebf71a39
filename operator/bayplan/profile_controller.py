"""The reconciler of SchedulerProfiles and PluginConfigs.

Level-based: every change leads to the same step over all objects: validate, swap, store revisions, write statuses.
Swapping runs in the event loop without awaiting, so that a slow API server never delays a profile. Storing and writing
follow in a task that retries on its own, because the watch events that caused them are not delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product

from msgspec import Struct

from bayplan.kube.backoff import Backoff
from bayplan.live_profiles import LiveProfiles
from bayplan.object_store import Body, ObjectStore
from bayplan.reconcile.desired_state import DesiredProfile, DesiredState, desired_state
from bayplan.reconcile.extenders import extender_states
from bayplan.reconcile.profile_events import plugin_config_events, profile_events
from bayplan.reconcile.profile_selection import ProfileSelection
from bayplan.reconcile.served_profiles import ServedProfiles
from bayplan.reconcile.status import ProfileFindings, Progress, plugin_config_status, problems_message, profile_status
from bayplan.resources.conditions import ConditionState
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.resource_model import CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.revision_history import RevisionHistory, RevisionStore
from bayplan.status_publisher import StatusPublisher, StatusSource, StatusWriter
from bayplan.stored_revision import change_cause, origin_of
from scheduler_core.cycle.context import ProfileRecord
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.ports import Clock
from scheduler_core.queueing.scheduling_queue import QueueCounts
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

RECONCILED, PUBLISHED = "schedulerprofiles", "statuses"
_STEPS = {RECONCILED: "reconciling profiles", PUBLISHED: "writing revisions and statuses"}
_LOOK_SECONDS = 2.0
_FIRST_RETRY_SECONDS = 0.2
_LONGEST_RETRY_SECONDS = 30.0


class ControllerPorts(Struct, frozen=True):
    """The ports of the controller.

    Attributes:
        revisions: ControllerRevisions in the operator's namespace.
        statuses: Status subresources.
        clock: Clock.
    """

    revisions: RevisionStore
    statuses: StatusWriter
    clock: Clock


class ProfileController:
    """Reconciler of SchedulerProfiles and PluginConfigs.

    Attributes:
        history: Stored revisions.
        reconciles: Number of reconciles of profiles (:data:`RECONCILED`) and of writes of their results
            (:data:`PUBLISHED`), by result: ``success``, ``error`` (a request refused or lost) or ``fault`` (a bug).
        on_served_elsewhere: Called when a scheduler name starts or stops being served by another process.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        ports: ControllerPorts,
        *,
        allow_default_scheduler: bool = False,
        selection: ProfileSelection | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = ports.clock
        self._allow_default_scheduler = allow_default_scheduler
        self._served = ServedProfiles(selection)
        self.on_served_elsewhere: Callable[[], None] = lambda: None
        self.history = RevisionHistory(ports.revisions)
        self._live = LiveProfiles(scheduler, self.history.last_good)
        self._publisher = StatusPublisher(ports.statuses, ports.clock, scheduler.context.writer.record)
        self._stores: dict[type[CustomResource], ObjectStore] = {
            SchedulerProfile: ObjectStore(),
            PluginConfig: ObjectStore(),
        }
        self._desired = DesiredState((), ())
        self._findings: tuple[ProfileFindings, ...] = ()
        self._rejected: dict[str, str] = {}
        # Start at 0: a rate over a counter that appears late misses its first increase.
        self.reconciles = Counter(dict.fromkeys(product(_STEPS, ("success", "error", "fault")), 0))
        self._objects_changed = asyncio.Event()
        self._to_publish = asyncio.Event()

    # -- observed objects ---------------------------------------------------------------------------------------

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        """Store an object that was added, updated or listed again."""
        if self._stores[kind].seen(body):
            self._objects_changed.set()

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        """Remove a deleted object."""
        if self._stores[kind].gone(body):
            self._objects_changed.set()

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        """Replace all objects of a kind by a list."""
        if self._stores[kind].listed(bodies, resource_version):
            self._objects_changed.set()

    # -- reconciling --------------------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Validate all objects and make the scheduler run the result, in one step between two cycles."""
        self._objects_changed.clear()
        desired = desired_state(
            self._stores[SchedulerProfile].bodies(),
            self._stores[PluginConfig].bodies(),
            self._scheduler.registry,
            allow_default_scheduler=self._allow_default_scheduler,
            selection=self._served.selection,
        )
        step = self._live.apply(desired)
        for activation in step.activations:
            body = self._body(activation.meta.name)
            self.history.note(activation.meta, activation.config, origin_of(body, activation.config))
        for uid in _uids(self._desired) - _uids(desired):
            self.history.forget(uid)
        self._desired, self._findings = desired, step.findings
        self._explain_revisions()
        self.reconciles[RECONCILED, "success"] += 1
        if self._served.update(desired):
            self.on_served_elsewhere()
        self._log_rejected()
        self._to_publish.set()

    def _judged(self) -> Iterator[tuple[DesiredProfile, ProfileFindings]]:
        return zip(self._desired.profiles, self._findings, strict=True)

    def _explain_revisions(self) -> None:
        """Record change causes set after the edit, as ``kubectl annotate`` does, with their stored revisions."""
        for profile, found in self._judged():
            config = profile.config
            if config is not None and not found.problems and config.revision() == found.live_revision:
                cause = change_cause(self._body(profile.meta.name)["metadata"])
                self.history.explain(profile.meta.uid, found.live_revision, cause)

    def _body(self, name: str) -> Body:
        body = self._stores[SchedulerProfile].body("", name)
        assert body is not None  # only stored objects are validated
        return body

    def serves(self, scheduler_name: str) -> bool | None:
        """Return whether this process serves a scheduler name; None if no process does."""
        return self._served.serves(scheduler_name)

    async def publish(self, *, counts_too: bool = False) -> None:
        """Store the revisions that went live and write the statuses that changed.

        Args:
            counts_too: Write counts before their interval is over, too.

        Raises:
            ClusterWriteError: A write failed; all others were attempted.
        """
        try:
            await self.history.save()
        finally:
            await self._publisher.publish(self._sources(), counts_too=counts_too)
        self.reconciles[PUBLISHED, "success"] += 1

    def conditions(self) -> Iterator[ConditionState]:
        """Yield every condition of every object, as last written."""
        return self._publisher.conditions()

    def publish_soon(self) -> None:
        """Schedule a write of the statuses; :meth:`run` performs it."""
        self._to_publish.set()

    async def run(self) -> None:
        """Reconcile and publish until cancelled."""
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
        for profile, findings in self._judged():
            if not findings.problems:
                continue
            uid = profile.meta.uid
            messages[uid] = problems_message(findings.problems)
            if self._rejected.get(uid) != messages[uid]:
                log.warning("profile %s: spec rejected: %s", profile.meta.name, messages[uid])
        self._rejected = messages

    def _sources(self) -> list[StatusSource]:
        counts = self._scheduler.context.queue.counts()
        sources = [
            StatusSource(
                SchedulerProfile.definition.plural,
                profile.meta,
                profile.status,
                partial(profile_status, findings, self._progress(profile, findings, counts)),
                partial(profile_events, profile.meta),
            )
            for profile, findings in self._judged()
        ]
        sources += [
            StatusSource(
                PluginConfig.definition.plural,
                config.meta,
                config.status,
                partial(plugin_config_status, config),
                partial(plugin_config_events, config.meta),
            )
            for config in self._desired.plugin_configs
        ]
        return sources

    def _progress(
        self, profile: DesiredProfile, findings: ProfileFindings, counts: Mapping[str, QueueCounts]
    ) -> Progress:
        """Return what the profile has done; all zero if it does not run."""
        name = profile.scheduler_name
        record = self._scheduler.context.records.get(name)
        if not findings.holds_name or record is None:
            record = ProfileRecord()
        waiting = counts.get(name, QueueCounts()) if findings.live_revision else QueueCounts()
        live = self._scheduler.context.profiles.get(name) if findings.live_revision else None
        return Progress(
            active=waiting.active,
            backoff=waiting.backoff,
            unschedulable=waiting.unschedulable,
            gated=waiting.gated,
            scheduled=record.scheduled,
            last_scheduled=record.last_scheduled,
            last_error=record.last_error,
            lost_binds=record.lost_binds,
            last_lost_bind=record.last_lost_bind,
            extenders=() if live is None else extender_states(live),
        )


def _uids(desired: DesiredState) -> set[str]:
    return {profile.meta.uid for profile in desired.profiles}
