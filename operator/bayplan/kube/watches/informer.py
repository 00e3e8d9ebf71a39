"""Informer: lists one resource, then watches it, and delivers every change to a sink.

    no version --streamed or paged list--> listing --complete--> watching --connection lost--> watching (same version)
        ^                                                           |
        +------------------------ 410, or an ERROR event -----------+

The sink always gets a consistent sequence of adds, updates and deletes: after a relist only the differences are
delivered. Deliveries are at least once: :mod:`bayplan.kube.watches.undelivered_changes` repeats what a sink failed to
handle. Follows client-go v0.37.1 ``tools/cache/reflector.go`` (WatchList with the paged list as fallback).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from bayplan.kube.http.api_request import InvalidRequestError, ResourceExpiredError
from bayplan.kube.http.connection import RAW_PAGES, ApiConnection, MalformedListError, list_pages
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.timing import Backoff
from bayplan.kube.watches.undelivered_changes import Deferral, Sink, T_contra, UndeliveredChanges, Unreadable
from bayplan.kube.watches.watch_stream import (
    DELETED,
    Bookmark,
    KubeObject,
    LineSplitter,
    MalformedStreamError,
    ObjectDecoder,
    StreamEndedError,
    Undecodable,
    WatchEvent,
    WatchOutages,
    watch_failure,
)
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.nullable_forms import readable_part
from scheduler_core.ports import Clock

_logger = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)


async def list_objects(connection: ApiConnection, path: str, kind: type[T]) -> tuple[list[T], int]:
    """List a collection.

    Returns:
        The objects in the server's order, and the number of objects that could not be decoded.

    Raises:
        ClusterWriteError: The request failed, or the response is not a list; see :meth:`ApiConnection.request`.
    """
    return decoded_objects(await list_json(connection, path), kind)


def decoded_objects(texts: Iterable[bytes], kind: type[T]) -> tuple[list[T], int]:
    """Decode objects; return those that could be decoded, and the number of the others."""
    decoder = ObjectJsonDecoder(kind)
    objects: list[T] = []
    unreadable = 0
    for text in texts:
        try:
            objects.append(decoder.decode(text))
        except msgspec.DecodeError:
            unreadable += 1
    return objects, unreadable


async def list_json(connection: ApiConnection, path: str) -> list[bytes]:
    """List a collection as JSON, in the server's order; raises as :func:`list_objects` does."""
    pages = list_pages(connection, path, RAW_PAGES)
    return [bytes(item) async for page in pages for item in page.items or ()]


_SETTLED_SECONDS = 1.0  # a stream that lasted this long, or delivered an event, counts as a success
_STREAMED_LIST_TRIES = 3  # a server that ignores the request for a streamed list never ends it


class RawHandler(Protocol[T_contra]):
    """Handler of objects as raw JSON, beside their decoded form; must not raise."""

    def on_object(self, obj: T_contra, raw: Raw) -> None:
        """Handle an object, even if unchanged, before the sink does. ``raw`` may be a view of a larger buffer."""

    def on_deleted(self, last_known: T_contra) -> None:
        """Handle a deleted object before the sink does."""


class Resource(Struct, frozen=True):
    """A collection to watch; selectors are in the API's syntax, and empty ones select all."""

    path: str
    field_selector: str = ""
    label_selector: str = ""

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        pairs = (("fieldSelector", self.field_selector), ("labelSelector", self.label_selector))
        return tuple(pair for pair in pairs if pair[1])


class InformerOptions(Struct, frozen=True):
    """Intervals and sizes of an informer.

    Attributes:
        idle_seconds: Silence after which a watch is opened again.
        watch_seconds: Range of the random time after which the server ends a watch.
        slice_seconds: Maximum CPU time of decoding before other tasks run.
        stale_seconds: Silence after which the known objects count as stale; 0 for never.
    """

    page_limit: int = 500
    # The API server sends a bookmark about once a minute.
    idle_seconds: float = 150.0
    watch_seconds: tuple[int, int] = (300, 600)
    list_seconds: float = 60.0
    backoff_initial_seconds: float = 0.2
    backoff_maximum_seconds: float = 30.0
    slice_seconds: float = 0.002
    # Longer than idle_seconds and the interval of bookmarks together, so that the objects of one watch that is opened
    # again are not stale.
    stale_seconds: float = 300.0
    seed: int | None = None


class Informer(Generic[T]):
    """Keeps ``known`` up to date and calls ``sink``; :meth:`run` runs until cancelled.

    ``outages`` is the log of outages that several informers share; ``deferral`` is set if the sink may handle changes
    later than it is called.

    Attributes:
        unreadable: Objects of which the newest version cannot be decoded, by key.
        known: Last readable version of each object that was delivered and not deleted, by ``namespace/name`` (``/name``
            if cluster-scoped).
        resource_version: Version to resume the watch from; empty before and between lists.
        events: Number of events applied, those of lists included.
        decode_errors: Number of versions of objects that could not be decoded, and of lines that were not JSON.
        last_event_time: ``clock.now()`` of the last event or bookmark.
        last_error: Reason of the last restart with its remedy, empty after a success.
    """

    def __init__(
        self,
        connection: ApiConnection,
        resource: Resource,
        kind: type[T],
        sink: Sink[T],
        clock: Clock,
        *,
        options: InformerOptions | None = None,
        outages: WatchOutages | None = None,
        deferral: Deferral | None = None,
    ) -> None:
        self._connection = connection
        self._resource = resource
        self.path = resource.path
        self._kind = kind
        self._decoder = ObjectDecoder(kind)
        self._sink = sink
        self._clock = clock
        self._options = options = options or InformerOptions()
        self._outages = outages or WatchOutages(clock)
        self._backoff = Backoff(options.backoff_initial_seconds, options.backoff_maximum_seconds, options.seed)
        self._random = random.Random(options.seed)
        self._listing: set[str] | None = None
        self._use_streamed_list = True
        self._streamed_list_failures = 0
        self._opened = False
        self._raw_handler: RawHandler[T] | None = None
        self.known: dict[str, T] = {}
        self.unreadable: dict[str, Unreadable[T]] = {}
        self.undelivered: UndeliveredChanges[T] = UndeliveredChanges(
            resource.path, sink, (self.known, self.unreadable), clock, deferral
        )
        self.resource_version = ""
        self.synced = False
        self.restarts = 0
        self.relists = 0
        self.events = 0
        self.decode_errors = 0
        self.last_event_time = 0.0
        self.last_error = ""

    def deliver_raw(self, handler: RawHandler[T] | None) -> None:
        """Deliver later objects as raw JSON, too, to one handler; None ends that."""
        self._raw_handler = handler

    async def run(self) -> None:
        """List, watch and start over as needed, until cancelled."""
        try:
            await self._run()
        finally:
            self.undelivered.stop()

    async def _run(self) -> None:
        while True:
            began, events = self._clock.now(), self.events
            failed = True
            try:
                await self._attempt()
                failed = False
            except InvalidRequestError as error:
                self._stream_refused(error)
            except (ResourceExpiredError, StreamEndedError) as error:
                self._note_error(error)
                # The version is too old, or resuming from it may repeat the error.
                self.resource_version = ""
            except SchedulerCoreError as error:
                self._note_error(error)
            self.restarts += 1
            # A streamed list that did not end is dropped as a whole: only a complete list shows what was deleted.
            if self._listing is not None:
                self._listing = None
                # An unreachable server does not show whether it supports streamed lists.
                self._streamed_list_failures += self._opened
            self._opened = False
            # A watch that is refused at once, again and again, must not reset the delay.
            settled = self._clock.now() - began >= _SETTLED_SECONDS
            if settled or (self.events > events and not failed):
                self._backoff.reset()
            # A watch that the server ends after its timeout is opened again at once.
            if failed or not settled:
                await self._clock.sleep(self._backoff.next_delay())

    @property
    def stale_seconds(self) -> float:
        return self._options.stale_seconds

    @property
    def staleness(self) -> str:
        """Why the known objects are stale, as text; empty if they are current or not listed yet."""
        silence = self._clock.now() - self.last_event_time
        if not self.synced or not 0 < self._options.stale_seconds < silence:
            return ""
        return f"no event or bookmark for {silence:.0f} s: {self.last_error or 'the API server sends none'}"

    @property
    def sink_errors(self) -> int:
        return self.undelivered.errors

    @property
    def reads_pages(self) -> bool:
        """Whether the API server does not stream lists, so that they are read in pages."""
        return not self._use_streamed_list or self._streamed_list_failures >= _STREAMED_LIST_TRIES

    def _note_error(self, error: SchedulerCoreError) -> None:
        self._outages.broke(self._resource.path, error)
        self.last_error = watch_failure(self._resource.path, error)
        try:
            self._sink.on_trouble(self.last_error)
        except Exception:
            # The watch must start again, whatever the sink raises.
            self.undelivered.errors += 1
            _logger.exception("Handling an error of the watch of %s failed; the watch continues", self._resource.path)

    def _stream_refused(self, error: InvalidRequestError) -> None:
        # Without a version the watch has requested a streamed list, which an older API server rejects.
        if not self.resource_version and self._use_streamed_list:
            _logger.debug("%s does not support a list by watch, reading pages instead: %s", self._resource.path, error)
            self._use_streamed_list = False
            return
        self._note_error(error)
        self.resource_version = ""

    async def _attempt(self) -> None:
        if not self.resource_version:
            if self.synced:
                self.relists += 1
            if self.reads_pages:
                await self._list_pages()
            else:
                self._listing = set()
        await self._watch()

    async def _watch(self) -> None:
        params = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            # Random, so that the watches do not end, and are not opened again, together.
            ("timeoutSeconds", str(self._random.randint(*self._options.watch_seconds))),
            *self._resource.params,
        ]
        if self._listing is not None:
            # Without a resourceVersion the list is the most recent one; client-go requests its last known version.
            params += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        else:
            params.append(("resourceVersion", self.resource_version))
        splitter = LineSplitter()
        clock, decode = self._clock, self._decoder.line
        async with self._connection.stream(self._resource.path, tuple(params), self._options.idle_seconds) as stream:
            self._opened = True
            self._outages.opened(self._resource.path)
            while chunk := await stream.readany():
                self.last_event_time = clock.now()
                # Not the injected clock: decoding takes real time in a simulation, too.
                slice_ends = time.perf_counter() + self._options.slice_seconds
                for line in splitter.feed(chunk):
                    try:
                        event = decode(line)
                    except MalformedStreamError:
                        self.decode_errors += 1
                        raise
                    if self._raw_handler is not None and isinstance(event, WatchEvent) and event.type != DELETED:
                        self._raw_handler.on_object(event.object, self._decoder.raw(line))
                    self._apply(event)
                    if time.perf_counter() >= slice_ends:
                        await clock.sleep(0)
                        slice_ends = time.perf_counter() + self._options.slice_seconds
                self.last_error = ""

    async def _list_pages(self) -> None:
        self._listing = None
        listed: set[str] = set()
        resource, options = self._resource, self._options
        pages = list_pages(
            self._connection,
            resource.path,
            RAW_PAGES,
            params=resource.params,
            limit=options.page_limit,
            seconds=options.list_seconds,
        )
        version = ""
        try:
            async for page in pages:
                self.last_event_time = self._clock.now()
                slice_ends = time.perf_counter() + options.slice_seconds
                for raw in page.items or ():
                    event = self._decoder.listed(raw)
                    if self._raw_handler is not None and isinstance(event, WatchEvent):
                        self._raw_handler.on_object(event.object, raw)
                    self._apply_listed(event, listed)
                    if time.perf_counter() >= slice_ends:
                        await self._clock.sleep(0)
                        slice_ends = time.perf_counter() + options.slice_seconds
                version = page.metadata.resource_version
        except MalformedListError as error:
            self.decode_errors += 1
            message = f"The list is not readable ({error.__cause__}); it is requested again."
            raise MalformedStreamError(message) from error
        self._finish_list(listed, version)

    def _apply(self, event: WatchEvent[T] | Bookmark | Undecodable) -> None:
        listing = self._listing
        if type(event) is Bookmark:
            if listing is None:
                # The version of a resource without changes would expire without bookmarks.
                self.resource_version = event.resource_version
            elif event.ends_list:
                self._listing = None
                self._streamed_list_failures = 0
                self._finish_list(listing, event.resource_version)
            return
        if listing is not None:
            # Delivered while the list arrives; client-go collects it in a second store first.
            self._apply_listed(event, listing)
            return
        if type(event) is Undecodable:
            self._skip(event)
            self.resource_version = event.metadata.resource_version or self.resource_version
            return
        assert isinstance(event, WatchEvent)
        obj: T = event.object
        meta = obj.metadata
        # Set before the delivery: a change that the sink fails to handle is repeated from memory, not by the server.
        self.resource_version = meta.resource_version
        self.events += 1
        key = f"{meta.namespace}/{meta.name}"
        if event.type == DELETED:
            self._delete(key)
        else:
            self._upsert(key, obj)

    def _apply_listed(self, event: WatchEvent[T] | Bookmark | Undecodable, listed: set[str]) -> None:
        """Apply an event of a list that is not complete yet."""
        if type(event) is Undecodable:
            listed.add(f"{event.metadata.namespace}/{event.metadata.name}")
            self._skip(event)
            return
        assert isinstance(event, WatchEvent)
        obj: T = event.object
        meta = obj.metadata
        key = f"{meta.namespace}/{meta.name}"
        # The version stays empty: a watch must not resume within a list.
        self.events += 1
        if event.type == DELETED:
            # Objects change while the list is streamed.
            listed.discard(key)
            self._delete(key)
            return
        listed.add(key)
        self._upsert(key, obj)

    def _finish_list(self, listed: set[str], resource_version: str) -> None:
        # What the list lacks was deleted while no watch was open.
        for key in [key for key in (*self.known, *self.unreadable) if key not in listed]:
            self._delete(key)
        self.resource_version = resource_version
        if not self.synced:
            self.synced = True
            self.undelivered.deliver_synced()

    def _skip(self, event: Undecodable) -> None:
        meta = event.metadata
        key = f"{meta.namespace}/{meta.name}"
        self.decode_errors += 1
        # Another UID: the known object was deleted and created again between two events.
        if event.type == DELETED or (key in self.known and meta.uid and self.known[key].metadata.uid != meta.uid):
            self._delete(key)
        if event.type == DELETED:
            return
        try:
            shown = readable_part(event.content, self._kind)
        except msgspec.ValidationError:
            _logger.error("%s: an object without a readable name is skipped: %s", self._resource.path, event.reason)  # noqa: TRY400 - the reason is complete
            return
        before = self.unreadable.get(key)
        if before is not None and before.object.metadata == shown.metadata:
            return  # Listed again.
        text = "%s %s cannot be decoded; what depends on it fails closed: %s"
        _logger.error(text, self._resource.path, key, event.reason)
        self.unreadable[key] = Unreadable(shown, event.reason)
        self.undelivered.deliver_unreadable(key, shown, event.reason)

    def _upsert(self, key: str, obj: T) -> None:
        known = self.known
        old = known.get(key)
        if self.unreadable and key in self.unreadable:
            self._restore(key, obj)
            old = known.get(key)
        if old is not None:
            # Listed again: only differences are delivered.
            if old.metadata.resource_version == obj.metadata.resource_version:
                return
            if old.metadata.uid != obj.metadata.uid:
                self._delete(key)  # deleted and created again between two events
                old = None
        known[key] = obj
        self.undelivered.deliver(key, old, obj)

    def _restore(self, key: str, obj: T) -> None:
        """Deliver that an object can be decoded again, before its new version."""
        shown = self.unreadable[key].object
        if shown.metadata.uid != obj.metadata.uid:
            self._delete(key)
            return
        del self.unreadable[key]
        self.undelivered.deliver_unreadable(key, obj, "")

    def _delete(self, key: str) -> None:
        old = self.known.pop(key, None)
        unreadable = self.unreadable.pop(key, None)
        if old is None and unreadable is not None:
            self.undelivered.deliver(key, unreadable.object, None)
        if old is not None:
            if self._raw_handler is not None:
                self._raw_handler.on_deleted(old)
            self.undelivered.deliver(key, old, None)
