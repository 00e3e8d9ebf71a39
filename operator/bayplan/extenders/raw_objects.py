"""Nodes and pods in the API server's own JSON, for extenders that need whole objects.

While there is a subscription, the JSON of each matching object is stored beside its decoded form, and the objects that
came before are listed once. Without subscriptions nothing is stored.

    no subscription ──first one──▶ listing, and storing events ──list complete──▶ storing events
         ▲                                                                              │
         └─────────────────────────────── last one ends ────────────────────────────────┘

An object that is not stored is read singly: memory is bounded, and a missing object must never make a request wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from bayplan.kube.http.connection import RAW_PAGES, ApiConnection, ApiRequest, Lane, list_pages
from bayplan.kube.http.deep_json import DeepDecoder, ObjectJsonDecoder
from bayplan.kube.watches.informer import Informer
from bayplan.kube.watches.watch_stream import KubeObject, ObjectIdentity
from scheduler_core.errors import NotFoundError, SchedulerCoreError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

_READ_SECONDS = 5.0
_LISTING_PATIENCE_SECONDS = 5.0

_FIELDS = DeepDecoder(dict[str, Raw])


class _Identified(Struct, frozen=True):
    metadata: ObjectIdentity


_IDENTIFIED = ObjectJsonDecoder(_Identified)


class RawResource(Struct, frozen=True):
    """The resource to store, and how much of it.

    Attributes:
        path: Path of the whole collection, such as ``/api/v1/nodes``.
        managed_fields: Whether to store ``metadata.managedFields``.
        budget_bytes: Maximum size; objects beyond it are read on demand.
    """

    path: str
    managed_fields: bool
    budget_bytes: int = 256 << 20


class Subscription(Generic[T]):
    """The objects that a client needs, also by a field selector as far as the API's syntax can express that."""

    __slots__ = ("field_selector", "matches")

    def __init__(self, matches: Callable[[T], bool], field_selector: str = "") -> None:
        self.matches = matches
        self.field_selector = field_selector


class _Stored(Struct, frozen=True):
    uid: str
    json: bytes


class RawObjects(Generic[T]):
    """The JSON of one resource's objects; its informer delivers it while there is a subscription."""

    def __init__(self, connection: ApiConnection, resource: RawResource, informer: Informer[T]) -> None:
        self._connection = connection
        self._resource = resource
        self._informer = informer
        self._subscriptions: list[Subscription[T]] = []
        self._stored: dict[str, _Stored] = {}
        self._listings: set[asyncio.Task[None]] = set()
        self.stored_bytes = 0

    def __len__(self) -> int:
        return len(self._stored)

    # -- subscriptions ------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription[T]) -> None:
        """Store the matching objects from now on, and list the existing ones; call this on the running loop."""
        self._subscriptions.append(subscription)
        self._informer.deliver_raw(self)
        # An informer that has not started delivers everything anyway.
        if self._informer.known or self._informer.synced:
            listing = asyncio.get_running_loop().create_task(self._list(subscription))
            self._listings.add(listing)
            listing.add_done_callback(self._listings.discard)

    def unsubscribe(self, subscription: Subscription[T]) -> None:
        """End a subscription: drop the objects that no other subscription matches."""
        self._subscriptions.remove(subscription)
        if not self._subscriptions:
            self._informer.deliver_raw(None)
            self._stored.clear()
            self.stored_bytes = 0
            return
        for key in list(self._stored):
            obj = self._informer.known.get(key)
            if obj is None or not self._is_needed(obj):
                self._forget(key)

    async def close(self) -> None:
        listings = list(self._listings)
        for listing in listings:
            listing.cancel()
        await asyncio.gather(*listings, return_exceptions=True)

    # -- events of the informer ---------------------------------------------------------------------------------

    def on_object(self, obj: T, raw: Raw) -> None:
        """Store an object's JSON, or drop it if no subscription matches."""
        meta = obj.metadata
        key = f"{meta.namespace}/{meta.name}"
        if self._is_needed(obj):
            self._store(key, meta.uid, raw)
        else:
            self._forget(key)

    def on_deleted(self, last_known: T) -> None:
        """Drop an object, unless another one of its name is stored already."""
        meta = last_known.metadata
        key = f"{meta.namespace}/{meta.name}"
        stored = self._stored.get(key)
        if stored is not None and stored.uid == meta.uid:
            self._forget(key)

    # -- reading ------------------------------------------------------------------------------------------------

    async def read(self, wanted: Iterable[tuple[str, str, str]]) -> dict[str, bytes]:
        """Return the JSON of some objects.

        Args:
            wanted: Namespace (empty if cluster-scoped), name and UID of each; an empty UID matches any.

        Returns:
            The JSON by ``namespace/name``, without objects that are gone.

        Raises:
            ClusterWriteError: An object that is not stored could not be read from the API server.
        """
        objects = list(wanted)
        if self._listings and any(self._lacks(*identity) for identity in objects):
            await asyncio.wait(list(self._listings), timeout=_LISTING_PATIENCE_SECONDS)
        missing = [identity for identity in objects if self._lacks(*identity)]
        # Collected before the first await: stored objects may be dropped in the meantime.
        keys = (f"{namespace}/{name}" for namespace, name, _ in objects)
        found = {key: self._stored[key].json for key in keys if key in self._stored}
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
        stored = self._stored.get(f"{namespace}/{name}")
        return stored is None or (bool(uid) and stored.uid != uid)

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
        self._store_listed(meta, raw)
        return self._trimmed(raw)

    # -- storing ------------------------------------------------------------------------------------------------

    async def _list(self, subscription: Subscription[T]) -> None:
        selector = (("fieldSelector", subscription.field_selector),) if subscription.field_selector else ()
        try:
            async for page in list_pages(self._connection, self._resource.path, RAW_PAGES, params=selector):
                for raw in page.items or ():
                    self._store_listed(_IDENTIFIED.decode(raw).metadata, raw)
                await asyncio.sleep(0)
                if subscription not in self._subscriptions:
                    return
        except (SchedulerCoreError, msgspec.DecodeError) as error:
            log.warning(
                "%s cannot be listed for extenders; objects are read one by one: %s", self._resource.path, error
            )

    def _store_listed(self, meta: ObjectIdentity, raw: Raw) -> None:
        """Store an object read beside the watch if the informer has the same version: a newer one must stay."""
        key = f"{meta.namespace}/{meta.name}"
        known = self._informer.known.get(key)
        same = known is not None and known.metadata.resource_version == meta.resource_version
        if known is not None and same and self._is_needed(known):
            self._store(key, meta.uid, raw)

    def _store(self, key: str, uid: str, raw: Raw) -> None:
        self._forget(key)
        json = self._trimmed(raw)
        if self.stored_bytes + len(json) <= self._resource.budget_bytes:
            self._stored[key] = _Stored(uid, json)
            self.stored_bytes += len(json)

    def _forget(self, key: str) -> None:
        stored = self._stored.pop(key, None)
        if stored is not None:
            self.stored_bytes -= len(stored.json)

    def _is_needed(self, obj: T) -> bool:
        return any(subscription.matches(obj) for subscription in self._subscriptions)

    def _trimmed(self, raw: Raw) -> bytes:
        """Trim JSON as kube-scheduler writes its own objects: without kind, pods without managedFields."""
        fields = _FIELDS.decode(raw)
        fields.pop("kind", None)
        fields.pop("apiVersion", None)
        if not self._resource.managed_fields and "metadata" in fields:
            metadata = _FIELDS.decode(fields["metadata"])
            metadata.pop("managedFields", None)
            fields["metadata"] = Raw(msgspec.json.encode(metadata))
        return msgspec.json.encode(fields)
