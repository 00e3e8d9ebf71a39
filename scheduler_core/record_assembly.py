"""Builds recorded schedulers, and schedulers that replay a record."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import asdict, replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.registry import Registry
from scheduler_core.ports import Clock
from scheduler_core.recording.object_types import ObjectTypes
from scheduler_core.recording.record_entries import Entry
from scheduler_core.recording.record_file import RecordError, RecordHeader
from scheduler_core.recording.recorded_ports import RecordedPort, record_feed, recorded_extenders
from scheduler_core.recording.recorder import Recorder
from scheduler_core.recording.replay import Replay, ReplayLoop, feeds_of
from scheduler_core.recording.replayed_input import Difference, RecordedInput
from scheduler_core.recording.replayed_ports import ReplayedPort, ReplayedTiming, ReplayedWriter, replayed_extenders
from scheduler_core.scheduler import Scheduler
from scheduler_core.scheduler_options import SchedulerOptions, SchedulerPorts

__all__ = ["Difference", "ReplayLoop"]

_INFINITE = "inf"


def recorded_ports(recorder: Recorder, clock: Clock, ports: SchedulerPorts) -> SchedulerPorts:
    """Return ports whose answers are recorded.

    Args:
        recorder: The recorder; the scheduler has its clock.
        clock: The clock behind it, which measures durations for the metrics.
        ports: The ports.
    """
    made: Any = {"journal": recorder, "timing": clock}
    for name in ("storage", "claims"):
        port = getattr(ports, name)
        if port is not None:
            made[name] = RecordedPort(port, recorder)
    if ports.make_extender is not None:
        made["make_extender"] = recorded_extenders(ports.make_extender, recorder)
    return replace(ports, **made)


def record_feeds(recorder: Recorder, scheduler: Scheduler) -> None:
    """Record the calls of a scheduler's feeds; call it before anything uses them."""
    recorder.objects = ObjectTypes(scheduler.decoded)
    for name, feed in feeds_of(scheduler).items():
        record_feed(recorder, name, feed)


def header_of(options: SchedulerOptions, ports: SchedulerPorts, registry: Registry, version: str) -> RecordHeader:
    """Return the header of a new record."""
    return RecordHeader(
        run=uuid4().hex,
        bayplan=version,
        options={
            name: _INFINITE if value == math.inf else msgspec.to_builtins(value)
            for name, value in asdict(options).items()
        },
        has_storage=ports.storage is not None,
        has_claims=ports.claims is not None,
        has_extenders=ports.make_extender is not None,
        plugins=tuple(sorted(registry)),
    )


def options_of(header: RecordHeader) -> SchedulerOptions:
    """Return the options of a recorded scheduler.

    Raises:
        RecordError: An option is not known.
    """
    unknown = set(header.options) - set(SchedulerOptions.__struct_fields__)
    if unknown:
        raise RecordError(
            f"the record was written with options that this version does not have: {', '.join(sorted(unknown))}; "
            f"replay it with Bayplan {header.bayplan}"
        )
    values = {name: math.inf if value == _INFINITE else value for name, value in header.options.items()}
    try:
        return msgspec.convert(values, SchedulerOptions)
    except msgspec.ValidationError as error:
        raise RecordError(f"the options of the record are invalid: {error}") from error


def replay_of(
    header: RecordHeader, entries: Iterable[Entry], registry: Registry, defaults: Plugins | None = None
) -> tuple[RecordedInput, Scheduler, Replay]:
    """Return a replay that has not begun, with its scheduler.

    Args:
        header: The header of the record.
        entries: All entries.
        registry: Registry of plugins.
        defaults: Default plugin set of profiles.

    Raises:
        RecordError: The record cannot be replayed.
    """
    missing = sorted(set(header.plugins) - set(registry))
    if missing:
        raise RecordError(
            f"the record was written with plugins that are not installed: {', '.join(missing)}; install them"
        )
    recorded = RecordedInput(entries)
    ports: Any = {"journal": recorded, "timing": ReplayedTiming(recorded)}
    if header.has_storage:
        ports["storage"] = ReplayedPort(recorded)
    if header.has_claims:
        ports["claims"] = ReplayedPort(recorded)
    if header.has_extenders:
        ports["make_extender"] = replayed_extenders(recorded)
    options = options_of(header)
    scheduler = Scheduler(
        recorded, ReplayedWriter(recorded), options, registry, defaults, ports=SchedulerPorts(**ports)
    )
    recorded.objects = ObjectTypes(scheduler.decoded)
    recorded.move = scheduler.cycles.assumed.move
    return recorded, scheduler, Replay(recorded, scheduler)
