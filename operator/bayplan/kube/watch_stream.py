"""A watch's bytes as decoded events.

Owns the splitting of chunks into lines and the decoding of a line. Must not know what becomes of the events.

Why not the stream's ``readline``: it refuses lines above 128 KiB, and an object may be megabytes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from bayplan.kube.api_errors import ApiStatus, ResourceExpiredError, ServerFailedError
from bayplan.kube.deep_json import DeepDecoder
from scheduler_core.errors import SchedulerCoreError

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_LONGEST_LINE_BYTES = 256 << 20


class Metadata(Protocol):
    """The part of ``metadata`` that informers read."""

    @property
    def name(self) -> str:
        """The object's name."""

    @property
    def namespace(self) -> str:
        """Its namespace, empty for cluster-scoped kinds."""

    @property
    def uid(self) -> str:
        """Its UID."""

    @property
    def resource_version(self) -> str:
        """Its version, opaque."""


class KubeObject(Protocol):
    """A decoded object of any kind."""

    @property
    def metadata(self) -> Metadata:
        """The object's metadata."""


T = TypeVar("T", bound=KubeObject)


class ObjectIdentity(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata of an object whose rest could not be decoded."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None


class WatchEvent(Struct, Generic[T], frozen=True, gc=False):
    """ADDED, MODIFIED or DELETED and the object."""

    type: str
    object: T


class Bookmark(Struct, frozen=True, gc=False):
    """The stream has delivered everything up to ``resource_version``.

    ``ends_list`` says that the initial events of a streamed list are complete.
    """

    resource_version: str
    ends_list: bool


class Undecodable(Struct, frozen=True, gc=False):
    """An object that is not of the expected form."""

    type: str
    metadata: ObjectIdentity
    reason: str


class StreamEndedError(ServerFailedError):
    """The server ended the watch by an ERROR event: list again, since resuming may only repeat it."""


class MalformedStreamError(SchedulerCoreError):
    """What arrives is not JSON, or has no end: the watch has to be opened again."""


class _BookmarkMeta(Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _BookmarkObject(Struct, frozen=True, gc=False):
    metadata: _BookmarkMeta


class _IdentifiedObject(Struct, frozen=True, gc=False):
    metadata: ObjectIdentity = ObjectIdentity()


class _RawEvent(Struct, frozen=True, gc=False):
    type: str
    object: Raw


class LineSplitter:
    """Lines out of chunks that may end anywhere."""

    __slots__ = ("_bytes", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their line feeds; empty ones are left out.

        Raises:
            MalformedStreamError: A line is longer than 256 MiB.
        """
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
            self._bytes = 0
        if tail:
            self._parts.append(tail)
            self._bytes += len(tail)
            if self._bytes > _LONGEST_LINE_BYTES:
                raise MalformedStreamError("A line of the watch has no end; it is opened again.")
        return [line for line in lines if line]


class ObjectDecoder(Generic[T]):
    """Decodes lines of a watch, and single objects of a list, into structs of one type."""

    __slots__ = ("_bookmarks", "_events", "_identities", "_objects", "_raw_events", "_statuses")

    def __init__(self, kind: type[T]) -> None:
        self._events: DeepDecoder[WatchEvent[T]] = DeepDecoder(WatchEvent[kind])  # type: ignore[valid-type]  # the type is a value here
        self._objects: DeepDecoder[T] = DeepDecoder(kind)
        self._raw_events = DeepDecoder(_RawEvent)
        self._bookmarks = DeepDecoder(_BookmarkObject)
        self._identities = DeepDecoder(_IdentifiedObject)
        self._statuses = msgspec.json.Decoder(ApiStatus)

    def line(self, line: bytes) -> WatchEvent[T] | Bookmark | Undecodable:
        """Decode one line of a watch.

        Raises:
            ResourceExpiredError: The server ends the watch because its version is too old.
            StreamEndedError: The server ends the watch for another reason.
            MalformedStreamError: The line is not JSON, or not a watch event.
        """
        # `{"type":"ADDED",...`: the tenth byte tells objects (A, M, D) from bookmarks (B) and errors (E).
        if line[9:10] in b"AMD" and line.startswith(b'{"type":"'):
            try:
                return self._events.decode(line)
            except msgspec.ValidationError as error:
                return self._undecodable(line, str(error))
            except msgspec.DecodeError as error:
                raise MalformedStreamError(f"The watch sent what is not JSON ({error}); it is opened again.") from error
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
            raise MalformedStreamError(f"The watch sent what is no event ({error}); it is opened again.") from error
        try:
            return self._events.decode(line)
        except msgspec.ValidationError as error:
            return self._undecodable(line, str(error))

    def _undecodable(self, line: bytes, reason: str) -> Undecodable:
        try:
            event = self._raw_events.decode(line)
            identity = self._identities.decode(event.object).metadata
        except msgspec.DecodeError as error:
            raise MalformedStreamError(f"The watch sent what is no object ({error}); it is opened again.") from error
        return Undecodable(event.type, identity, reason)

    def raw(self, line: bytes) -> Raw:
        """The JSON of the object of a line that :meth:`line` has decoded; a view, which keeps the line alive."""
        return self._raw_events.decode(line).object

    def listed(self, raw: Raw) -> WatchEvent[T] | Undecodable:
        """Decode one item of a list, as the ADDED event that it amounts to."""
        try:
            return WatchEvent(ADDED, self._objects.decode(raw))
        except msgspec.ValidationError as error:
            try:
                identity = self._identities.decode(raw).metadata
            except msgspec.ValidationError:
                identity = ObjectIdentity()
            return Undecodable(ADDED, identity, str(error))


def _stream_error(status: ApiStatus) -> ResourceExpiredError | StreamEndedError:
    message = f"The server ended the watch: {status.code} {status.reason}: {status.message}"
    return ResourceExpiredError(message) if status.code == 410 else StreamEndedError(message)
