"""Decoding of a watch's bytes to events."""

from __future__ import annotations

import logging
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from bayplan.kube.http.api_request import (
    ApiStatus,
    InvalidRequestError,
    ResourceExpiredError,
    ServerFailedError,
    UnauthorizedError,
)
from bayplan.kube.http.deep_json import DeepDecoder, ObjectJsonDecoder
from scheduler_core.errors import ForbiddenError, NotFoundError, SchedulerCoreError
from scheduler_core.ports import Clock

_logger = logging.getLogger(__name__)


class WatchOutages:
    """Log of the watches that fail."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._broken: set[str] = set()
        self._affected: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._tries = 0
        self._began = 0.0

    def broke(self, path: str, error: SchedulerCoreError) -> None:
        """Record that a watch ended, or could not be opened."""
        # An expired version is no failure: the watch starts over with a list, which the metric of relists counts.
        if isinstance(error, ResourceExpiredError):
            _logger.debug("Watch of %s starts over: %s", path, error)
            return
        text = watch_failure(path, error)
        if needs_user_action(error):
            # Once for each resource, apart from outages: only a user can end it.
            if self._reasons.get(path) != text:
                _logger.error("Watch of %s failed, retrying: %s", path, text)
            self._reasons[path] = text
            return
        # A server that is down breaks all watches: one line, and not one for each watch and attempt.
        if not self._affected:
            self._began, self._tries = self._clock.now(), 0
            _logger.warning("Watch of %s failed, retrying: %s", path, text)
        self._tries += 1
        self._affected.add(path)
        self._broken.add(path)

    def opened(self, path: str) -> None:
        self._reasons.pop(path, None)
        self._broken.discard(path)
        if self._affected and not self._broken:
            seconds = self._clock.now() - self._began
            _logger.info(
                "Watches that had failed: %d. All are open again after %.1f s, %d attempts",
                len(self._affected),
                seconds,
                self._tries,
            )
            self._affected.clear()


def watch_failure(path: str, error: SchedulerCoreError) -> str:
    """Return why a watch failed: the error's own text, with a remedy if a user has to act."""
    advice = _advice(path, error)
    return f"{error}; {advice}" if advice else str(error)


def needs_user_action(error: SchedulerCoreError) -> bool:
    """Return whether retries fail until a user changes the cluster."""
    return isinstance(error, UnauthorizedError) or bool(_advice("", error))


def _advice(path: str, error: SchedulerCoreError) -> str:
    if isinstance(error, InvalidRequestError):
        return ""
    *_, group, version, resource = ("", *path.split("/")) if path else ("", "", "")
    if isinstance(error, ForbiddenError):
        return (
            f'grant this process\'s account the verbs list and watch on resource "{resource}" of API group '
            f'"{"" if group == "api" else group}" in a ClusterRole'
        )
    if isinstance(error, NotFoundError):
        return (
            f"the API server does not serve {resource} of version {version}: upgrade it, or enable the API "
            "(--runtime-config)"
        )
    return ""


ADDED = "ADDED"
DELETED = "DELETED"

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_LONGEST_LINE_BYTES = 256 << 20


class Metadata(Protocol):
    """The fields of ``metadata`` that informers read; ``namespace`` is empty if cluster-scoped."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


class KubeObject(Protocol):
    """A decoded object of any resource."""

    @property
    def metadata(self) -> Metadata: ...


T = TypeVar("T", bound=KubeObject)


class ObjectIdentity(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of an object that could not be decoded as a whole."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class WatchEvent(Struct, Generic[T], frozen=True, gc=False):
    """Event of type ADDED, MODIFIED or DELETED with its object."""

    type: str
    object: T


class Bookmark(Struct, frozen=True, gc=False):
    """Everything up to ``resource_version`` was delivered; ``ends_list`` if that is the end of a streamed list."""

    resource_version: str
    ends_list: bool


class Undecodable(Struct, frozen=True):
    """An object that does not match the expected type."""

    type: str
    metadata: ObjectIdentity
    reason: str
    content: dict[str, Any]


class StreamEndedError(ServerFailedError):
    """Raised when the server ends a watch with an ERROR event: list again."""


class MalformedStreamError(SchedulerCoreError):
    """Raised for data that is not JSON or has no end: open the watch again."""


class _BookmarkMeta(Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _BookmarkObject(Struct, frozen=True, gc=False):
    metadata: _BookmarkMeta


class _RawEvent(Struct, frozen=True, gc=False):
    type: str
    object: Raw


class LineSplitter:
    # Not the stream's readline(), which rejects lines above 128 KiB: an object may have megabytes.
    __slots__ = ("_bytes", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete, without empty ones; raises MalformedStreamError above 256 MiB."""
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._parts:
            # Joined once, when the line is complete: a large object arrives in many chunks.
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
            self._bytes = 0
        if tail:
            self._parts.append(tail)
            self._bytes += len(tail)
            if self._bytes > _LONGEST_LINE_BYTES:
                raise MalformedStreamError("A line of the watch is longer than 256 MiB; the watch is opened again.")
        return [line for line in lines if line]


class ObjectDecoder(Generic[T]):
    """Decodes lines of a watch, and single objects of a list, to structs of one type."""

    __slots__ = ("_bookmarks", "_events", "_objects", "_plain", "_raw_events", "_statuses")

    def __init__(self, kind: type[T]) -> None:
        self._events: DeepDecoder[WatchEvent[T]] = DeepDecoder(WatchEvent[kind])  # type: ignore[valid-type]  # the type is a value here
        self._objects: DeepDecoder[T] = ObjectJsonDecoder(kind)
        self._raw_events = DeepDecoder(_RawEvent)
        self._bookmarks = ObjectJsonDecoder(_BookmarkObject)
        self._plain: DeepDecoder[Any] = DeepDecoder(Any)
        self._statuses = ObjectJsonDecoder(ApiStatus)

    def line(self, line: bytes) -> WatchEvent[T] | Bookmark | Undecodable:
        """Decode one line of a watch.

        Raises:
            ResourceExpiredError: The server ended the watch because its version is too old.
            StreamEndedError: The server ended the watch for another reason.
            MalformedStreamError: The line is not JSON, or not a watch event.
        """
        # `{"type":"ADDED",...`: the tenth byte distinguishes objects (A, M, D) from bookmarks (B) and errors (E).
        if line[9:10] in b"AMD" and line.startswith(b'{"type":"'):
            try:
                return self._events.decode(line)
            except msgspec.ValidationError:
                return self._nullable_line(line)
            except msgspec.DecodeError as error:
                raise MalformedStreamError(f"The watch sent no JSON ({error}); it is opened again.") from error
        return self._uncommon_line(line)

    def _uncommon_line(self, line: bytes) -> WatchEvent[T] | Bookmark | Undecodable:
        try:
            event = self._raw_events.decode(line)
            if event.type == "BOOKMARK":
                meta = self._bookmarks.decode(event.object).metadata
                return Bookmark(meta.resource_version, meta.annotations.get(_INITIAL_EVENTS_END) == "true")
            if event.type == "ERROR":
                raise _stream_error(self._statuses.decode(event.object))
        except msgspec.DecodeError as error:
            raise MalformedStreamError(f"The watch sent no event ({error}); it is opened again.") from error
        # An object in another layout of JSON, such as with spaces.
        return self._decoded(event.type, event.object)

    def _nullable_line(self, line: bytes) -> WatchEvent[T] | Undecodable:
        """Decode an object that has null where its struct has none, or does not match it at all."""
        try:
            event = self._raw_events.decode(line)
        except msgspec.DecodeError as error:
            raise MalformedStreamError(f"The watch sent no object ({error}); it is opened again.") from error
        return self._decoded(event.type, event.object)

    def _decoded(self, event_type: str, raw: Raw) -> WatchEvent[T] | Undecodable:
        try:
            return WatchEvent(event_type, self._objects.decode(raw))
        except msgspec.ValidationError as error:
            content = self._plain.decode(raw)
            if not isinstance(content, dict):
                raise MalformedStreamError(f"The API server sent no object ({error}); it is read again.") from error
            return Undecodable(event_type, _identity(content), str(error), content)

    def raw(self, line: bytes) -> Raw:
        """Return the JSON of the object in a line that :meth:`line` has decoded; a view, which keeps the line alive."""
        return self._raw_events.decode(line).object

    def listed(self, raw: Raw) -> WatchEvent[T] | Undecodable:
        """Decode one item of a list to an ADDED event."""
        return self._decoded(ADDED, raw)


def _identity(content: dict[str, Any]) -> ObjectIdentity:
    """Return the identity of an object of which any field may have a wrong type."""
    metadata = content.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    texts = [found.get(name) for name in ("name", "namespace", "uid", "resourceVersion")]
    return ObjectIdentity(*(text if isinstance(text, str) else "" for text in texts))


def _stream_error(status: ApiStatus) -> ResourceExpiredError | StreamEndedError:
    message = f"The server ended the watch: {status.code} {status.reason}: {status.message}"
    # A version may expire after the watch was accepted with HTTP 200.
    return ResourceExpiredError(message) if status.code == 410 else StreamEndedError(message)
