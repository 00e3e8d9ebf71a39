"""Deliveries to a sink, at least once: a change that the sink failed to handle is delivered again.

    delivered ◀──the call returns── change ──it raises──▶ undelivered ──newer change, or a timer──▶ change
                                                             (backoff from 0.2 s to 30 s, without end)

All versions that the sink may have are stored, and the newest one is delivered as an update of each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from bayplan.kube.timing import delay_of_try
from bayplan.kube.watches.watch_stream import KubeObject
from scheduler_core.ports import Clock, Timer

_logger = logging.getLogger(__name__)

_FIRST_BACKOFF_SECONDS = 0.2
_LONGEST_BACKOFF_SECONDS = 30.0
_RETRIES_AT_ONCE = 64
"""Retries of one timer before other tasks run."""
_MOST_VERSIONS = 8
"""Maximum number of stored versions of one object. The oldest one stays: it is the one that the sink has handled."""

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Unreadable(Generic[T]):
    """The readable fields of an object whose newest version cannot be decoded, and why, with the field's path."""

    object: T
    reason: str


class Sink(Protocol[T_contra]):
    """Receiver of an informer's events; called on the loop, one call at a time.

    ``on_unreadable(object, reason)`` is optional: it is called with the fields that can be read of a version that
    cannot be decoded, and with the whole object and an empty reason when it can be decoded again.

    After an exception the same object is delivered again, perhaps in a newer version, until a call succeeds.
    """

    def on_add(self, obj: T_contra) -> None:
        """Handle an object that was not known."""

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """Handle a new version of a known object with the same UID."""

    def on_delete(self, last_known: T_contra) -> None:
        """Handle a known object that is gone or no longer selected."""

    def on_synced(self) -> None:
        """Handle the end of the first full list; called until it succeeds."""

    def on_trouble(self, reason: str) -> None:
        """Handle an error of the list or the watch, with its remedy; both are retried."""


class Deferral(Protocol):
    """State of a sink that may handle changes later; ``on_error`` is called if a change that is passed now fails."""

    @property
    def is_on(self) -> bool:
        """Whether it handles changes later now."""

    on_error: Callable[[], None] | None


@dataclass(slots=True)
class _Undelivered(Generic[T]):
    """Change of one object that the sink has not handled.

    Attributes:
        handled_uid: UID of the object that the sink handled before; "" for none.
        versions: Versions that it may have, oldest first.
        was_unreadable: Whether the sink may have an unreadable version.
    """

    handled_uid: str
    versions: list[T] = field(default_factory=list)
    was_unreadable: bool = False
    tries: int = 0
    due: float = 0.0

    def add(self, version: T | None) -> None:
        if version is None or any(each is version for each in self.versions):
            return
        self.versions.append(version)
        if len(self.versions) > _MOST_VERSIONS:
            uids = [each.metadata.uid for each in self.versions]
            # One version of each object that had the name is needed: it is deleted.
            del self.versions[next((at for at in range(1, len(uids)) if uids[at] in uids[at + 1 :]), 1)]


class UndeliveredChanges(Generic[T]):
    """Delivers changes of one resource, and repeats those that fail.

    Args:
        objects: By key, the newest readable version of each object, and the objects of which the newest version cannot
            be decoded; the informer owns both.
        deferral: State of a sink that may handle changes later; None if it never does.
    """

    def __init__(
        self,
        path: str,
        sink: Sink[T],
        objects: tuple[Mapping[str, T], Mapping[str, Unreadable[T]]],
        clock: Clock,
        deferral: Deferral | None,
    ) -> None:
        self._path = path
        self._sink = sink
        self._known, self._unreadable = objects
        # A sink without it keeps the last readable version.
        self._on_unreadable: Callable[[T, str], None] | None = getattr(sink, "on_unreadable", None)
        self._clock = clock
        self._deferral = deferral
        self._changes: dict[str, _Undelivered[T]] = {}
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._synced_tries = 0
        self._synced_timer: Timer | None = None
        self._is_stopped = False
        self.errors = 0

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def keys(self) -> list[str]:
        """Keys of the objects that have a change that was not handled, sorted."""
        return sorted(self._changes)

    def stop(self) -> None:
        # A change that the sink has deferred may fail afterwards.
        self._is_stopped = True
        for timer in (self._timer, self._synced_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._synced_timer = None

    def deliver(self, key: str, old: T | None, new: T | None) -> None:
        """Deliver a change: ``old`` is None for an added object; ``new``, None for a deleted one, is known already."""
        if self._changes:
            undelivered = self._changes.get(key)
            if undelivered is not None:
                # Not as a change of its own: the sink may have any of the stored versions.
                undelivered.add(old)
                self._retry(key, undelivered)
                return
        deferral, sink = self._deferral, self._sink
        if deferral is not None and deferral.is_on:
            # An error of a deferred change is not raised by this call.
            deferral.on_error = partial(self._failed_later, key, old, new)
        try:
            if old is None:
                assert new is not None
                sink.on_add(new)
            elif new is None:
                sink.on_delete(old)
            else:
                sink.on_update(old, new)
        except Exception:
            # Of the sink, whatever it is: the watch must continue with the other objects.
            _logger.exception("Handling %s %s failed; it is delivered again", self._path, key)
            self._failed(self._undelivered(key, old, new))
        finally:
            if deferral is not None:
                deferral.on_error = None

    def deliver_unreadable(self, key: str, shown: T, reason: str) -> None:
        """Deliver what can be read of a version that cannot be decoded; without a reason a whole object again."""
        handle = self._on_unreadable
        if handle is None:
            return
        undelivered = self._changes.get(key)
        if undelivered is not None:
            undelivered.was_unreadable = True
            self._retry(key, undelivered)
            return
        deferral = self._deferral
        if deferral is not None and deferral.is_on:
            deferral.on_error = partial(self._unreadable_failed, key)
        try:
            handle(shown, reason)
        except Exception:
            # As above.
            _logger.exception("Handling %s %s failed; it is delivered again", self._path, key)
            self._unreadable_failed(key)
        finally:
            if deferral is not None:
                deferral.on_error = None

    def _unreadable_failed(self, key: str) -> None:
        undelivered = self._undelivered(key, self._known.get(key), None)
        undelivered.was_unreadable = True
        self._failed(undelivered)

    def deliver_synced(self) -> None:
        self._synced_timer = None
        deferral = self._deferral
        if deferral is not None and deferral.is_on:
            deferral.on_error = self._synced_failed
        try:
            self._sink.on_synced()
        except Exception:
            # Scheduling starts only after the first lists of all kinds are handled.
            _logger.exception("Handling the first list of %s failed; it is repeated", self._path)
            self._synced_failed()
        finally:
            if deferral is not None:
                deferral.on_error = None

    def _synced_failed(self) -> None:
        self.errors += 1
        if self._synced_timer is None and not self._is_stopped:
            self._synced_tries += 1
            delay = delay_of_try(self._synced_tries, _FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
            self._synced_timer = self._clock.call_later(delay, self.deliver_synced)

    # -- failures -----------------------------------------------------------------------------------------------

    def _undelivered(self, key: str, old: T | None, new: T | None) -> _Undelivered[T]:
        undelivered = self._changes.get(key)
        if undelivered is None:
            undelivered = self._changes[key] = _Undelivered("" if old is None else old.metadata.uid)
        # An exception may leave a change half applied, so that neither the version before nor the one after is certain.
        undelivered.add(old)
        undelivered.add(new)
        return undelivered

    def _failed_later(self, key: str, old: T | None, new: T | None) -> None:
        """Handle a change that failed when the sink handled it, after its call had returned."""
        undelivered = self._undelivered(key, old, new)
        # The sink may have received newer versions while it deferred the change.
        undelivered.add(self._known.get(key))
        self._failed(undelivered)

    def _failed(self, undelivered: _Undelivered[T]) -> None:
        self.errors += 1
        undelivered.tries += 1
        delay = delay_of_try(undelivered.tries, _FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        undelivered.due = self._clock.now() + delay
        self._start_timer(undelivered.due)

    def _start_timer(self, due: float) -> None:
        """Retry at a time, or sooner if a timer ends sooner."""
        if self._is_stopped:
            return
        if self._timer is not None:
            if self._timer_at <= due:
                return
            # A cancelled timer must not count as set if call_later() raises.
            timer, self._timer = self._timer, None
            timer.cancel()
        self._timer = self._clock.call_later(max(0.0, due - self._clock.now()), self._retry_due)
        self._timer_at = due

    def _retry_due(self) -> None:
        self._timer = None
        now = self._clock.now()
        due = [key for key, undelivered in self._changes.items() if undelivered.due <= now]
        for key in due[:_RETRIES_AT_ONCE]:
            self._retry(key, self._changes[key])
        if self._changes:
            self._start_timer(min(undelivered.due for undelivered in self._changes.values()))

    def _retry(self, key: str, undelivered: _Undelivered[T]) -> None:
        newest = self._known.get(key)
        if self._deferral is not None and self._deferral.is_on:
            # The versions that the sink has are known only after it has handled what it deferred.
            undelivered.due = self._clock.now() + _FIRST_BACKOFF_SECONDS
            self._start_timer(undelivered.due)
            return
        try:
            self._deliver_again(key, undelivered, newest)
        except Exception:
            _logger.exception("Handling %s %s failed; it is delivered again", self._path, key)
            # The sink may have applied a part of it.
            undelivered.add(newest)
            self._failed(undelivered)
        else:
            del self._changes[key]

    def _deliver_again(self, key: str, undelivered: _Undelivered[T], newest: T | None) -> None:
        unreadable, handle = self._unreadable.get(key), self._on_unreadable
        self._deliver_versions(undelivered, newest, is_restored=undelivered.was_unreadable and unreadable is None)
        if unreadable is not None and handle is not None:
            handle(unreadable.object, unreadable.reason)

    def _deliver_versions(self, undelivered: _Undelivered[T], newest: T | None, *, is_restored: bool) -> None:
        uid = None if newest is None else newest.metadata.uid
        # Before the add: sinks that store objects by name would delete the new object.
        for gone in {each.metadata.uid: each for each in undelivered.versions if each.metadata.uid != uid}.values():
            self._sink.on_delete(gone)
        if newest is None:
            return
        if is_restored and self._on_unreadable is not None:
            self._on_unreadable(newest, "")
        if undelivered.handled_uid != uid:
            # An add that failed may have been applied in part, so updates of its versions follow.
            self._sink.on_add(newest)
        for version in undelivered.versions:
            if version.metadata.uid == uid and version is not newest:
                self._sink.on_update(version, newest)
