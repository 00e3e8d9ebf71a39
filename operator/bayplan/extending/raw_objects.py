"""Nodes and pods in the API server's own JSON, for those who must be shown them whole.

Owns that JSON and for how long it is kept. It must not know who asks. For as long as somebody wishes for objects, each
that comes is kept in bytes beside its decoded form, and those that came before are listed once; when nobody does,
nothing is kept and nothing is done.

    nobody wishes ──first wish──▶ listing, and keeping what comes ──list complete──▶ keeping what comes
         ▲                                                                               │
         └──────────────────────────────── last wish ends ───────────────────────────────┘

Why what is not kept is read singly: memory is bounded, and whatever was missed must never make a request wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from bayplan.kube.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.deep_json import DeepDecoder
from bayplan.kube.informer import Informer
from bayplan.kube.list_page import ListPage
from bayplan.kube.watch_stream import KubeObject, ObjectIdentity
from scheduler_core.errors import NotFoundError, SchedulerCoreError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

_PAGE_LIMIT = 500
_LIST_SECONDS = 60.0
_READ_SECONDS = 5.0
_LISTING_PATIENCE_SECONDS = 5.0

_FIELDS = DeepDecoder(dict[str, Raw])


class _Identified(Struct, frozen=True):
    metadata: ObjectIdentity


_PAGES = DeepDecoder(ListPage[Raw])
_IDENTIFIED = DeepDecoder(_Identified)


class RawResource(Struct, frozen=True):
    """What is kept of a kind, and how much.

    Attributes:
        path: Of the whole collection, such as ``/api/v1/nodes``.
        managed_fields: Whether ``metadata.managedFields`` are kept.
        budget_bytes: How much may be kept; what is beyond it is read when it is asked for.
    """

    path: str
    managed_fields: bool
    budget_bytes: int = 256 << 20


class Wish(Generic[T]):
    """For which objects somebody asks.

    Args:
        keeps: Whether an object is among them.
        field_selector: The same for the API server, in its syntax, as far as it can tell; empty selects all.
    """

    __slots__ = ("field_selector", "keeps")

    def __init__(self, keeps: Callable[[T], bool], field_selector: str = "") -> None:
        self.keeps = keeps
        self.field_selector = field_selector


class _Kept(Struct, frozen=True):
    uid: str
    json: bytes


class RawObjects(Generic[T]):
    """The JSON of one kind's objects; taps the informer of that kind while there is a wish.

    Args:
        connection: To the API server.
        resource: What is kept.
        informer: Of all objects of the kind.

    Attributes:
        kept_bytes: How much is kept.
    """

    def __init__(self, connection: ApiConnection, resource: RawResource, informer: Informer[T]) -> None:
        self._connection = connection
        self._resource = resource
        self._informer = informer
        self._wishes: list[Wish[T]] = []
        self._kept: dict[str, _Kept] = {}
        self._listings: set[asyncio.Task[None]] = set()
        self.kept_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    # -- wishes -------------------------------------------------------------------------------------------------

    def want(self, wish: Wish[T]) -> None:
        """Keep what a wish is about from now on, and list what is there already; call it on the running loop."""
        self._wishes.append(wish)
        self._informer.tap = self
        # An informer that has not begun tells everything anyway.
        if self._informer.known or self._informer.synced:
            listing = asyncio.get_running_loop().create_task(self._list(wish))
            self._listings.add(listing)
            listing.add_done_callback(self._listings.discard)

    def drop(self, wish: Wish[T]) -> None:
        """A wish has ended: what no other wish is about is forgotten."""
        self._wishes.remove(wish)
        if not self._wishes:
            self._informer.tap = None
            self._kept.clear()
            self.kept_bytes = 0
            return
        for key in list(self._kept):
            obj = self._informer.known.get(key)
            if obj is None or not self._is_wanted(obj):
                self._forget(key)

    async def close(self) -> None:
        """End lists that are under way."""
        listings = list(self._listings)
        for listing in listings:
            listing.cancel()
        await asyncio.gather(*listings, return_exceptions=True)

    # -- what the informer tells --------------------------------------------------------------------------------

    def came(self, obj: T, raw: Raw) -> None:
        """Keep an object's JSON, or forget it when it is no longer wanted."""
        meta = obj.metadata
        key = f"{meta.namespace}/{meta.name}"
        if self._is_wanted(obj):
            self._keep(key, meta.uid, raw)
        else:
            self._forget(key)

    def went(self, last_known: T) -> None:
        """Forget an object, unless another one of its name is there already."""
        meta = last_known.metadata
        key = f"{meta.namespace}/{meta.name}"
        kept = self._kept.get(key)
        if kept is not None and kept.uid == meta.uid:
            self._forget(key)

    # -- asking -------------------------------------------------------------------------------------------------

    async def read(self, wanted: Iterable[tuple[str, str, str]]) -> dict[str, bytes]:
        """Give the JSON of some objects.

        Args:
            wanted: Namespace (empty where there is none), name and UID of each; an empty UID is any.

        Returns:
            The JSON by ``namespace/name``; what is gone by now is left out.

        Raises:
            ClusterWriteError: What is not kept could not be read from the API server.
        """
        objects = list(wanted)
        if self._listings and any(self._lacks(*identity) for identity in objects):
            await asyncio.wait(list(self._listings), timeout=_LISTING_PATIENCE_SECONDS)
        missing = [identity for identity in objects if self._lacks(*identity)]
        # The result is gathered before anything is awaited: what is kept may go meanwhile.
        keys = (f"{namespace}/{name}" for namespace, name, _ in objects)
        found = {key: self._kept[key].json for key in keys if key in self._kept}
        if missing:
            answers = await asyncio.gather(*(self._read_one(*identity) for identity in missing), return_exceptions=True)
            for (namespace, name, _), answer in zip(missing, answers, strict=True):
                found.pop(f"{namespace}/{name}", None)
                if isinstance(answer, BaseException):
                    raise answer
                if answer is not None:
                    found[f"{namespace}/{name}"] = answer
        return found

    def _lacks(self, namespace: str, name: str, uid: str) -> bool:
        kept = self._kept.get(f"{namespace}/{name}")
        return kept is None or (bool(uid) and kept.uid != uid)

    async def _read_one(self, namespace: str, name: str, uid: str) -> bytes | None:
        collection = self._resource.path
        if namespace:
            prefix, _, plural = collection.rpartition("/")
            collection = f"{prefix}/namespaces/{quote(namespace, safe='')}/{plural}"
        request = ApiRequest("GET", f"{collection}/{quote(name, safe='')}", timeout=_READ_SECONDS, lane=Lane.READS)
        try:
            raw = Raw(await self._connection.request(request))
        except NotFoundError:
            return None
        meta = _IDENTIFIED.decode(raw).metadata
        if uid and meta.uid != uid:
            return None
        self._keep_listed(meta, raw)
        return self._trimmed(raw)

    # -- keeping ------------------------------------------------------------------------------------------------

    async def _list(self, wish: Wish[T]) -> None:
        token = ""
        try:
            while wish in self._wishes:
                params = [("limit", str(_PAGE_LIMIT))]
                if wish.field_selector:
                    params.append(("fieldSelector", wish.field_selector))
                if token:
                    params.append(("continue", token))
                body = await self._connection.request(
                    ApiRequest("GET", self._resource.path, params=tuple(params), timeout=_LIST_SECONDS, lane=Lane.READS)
                )
                page = _PAGES.decode(body)
                for raw in page.items or ():
                    self._keep_listed(_IDENTIFIED.decode(raw).metadata, raw)
                token = page.metadata.continue_
                if not token:
                    return
                await asyncio.sleep(0)
        except (SchedulerCoreError, msgspec.DecodeError) as error:
            log.warning(
                "%s cannot be listed for extenders, objects are read one by one: %s", self._resource.path, error
            )

    def _keep_listed(self, meta: ObjectIdentity, raw: Raw) -> None:
        """Keep what was read beside the watch, if the watch is as far: what it told later must not be overwritten."""
        key = f"{meta.namespace}/{meta.name}"
        known = self._informer.known.get(key)
        same = known is not None and known.metadata.resource_version == meta.resource_version
        if known is not None and same and self._is_wanted(known):
            self._keep(key, meta.uid, raw)

    def _keep(self, key: str, uid: str, raw: Raw) -> None:
        self._forget(key)
        json = self._trimmed(raw)
        if self.kept_bytes + len(json) <= self._resource.budget_bytes:
            self._kept[key] = _Kept(uid, json)
            self.kept_bytes += len(json)

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.kept_bytes -= len(kept.json)

    def _is_wanted(self, obj: T) -> bool:
        return any(wish.keeps(obj) for wish in self._wishes)

    def _trimmed(self, raw: Raw) -> bytes:
        """As kube-scheduler's own objects are when it writes them: without their kind, pods without managedFields."""
        fields = _FIELDS.decode(raw)
        fields.pop("kind", None)
        fields.pop("apiVersion", None)
        if not self._resource.managed_fields and "metadata" in fields:
            metadata = _FIELDS.decode(fields["metadata"])
            metadata.pop("managedFields", None)
            fields["metadata"] = Raw(msgspec.json.encode(metadata))
        return msgspec.json.encode(fields)
