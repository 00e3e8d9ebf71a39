"""Leader election on a ``coordination.k8s.io/v1`` Lease: of several replicas one schedules.

    standby --free or expired, written by us--> leading --released--> standby for good
                                                  '--not renewed in time, acquired by another--> lost

Leadership is a time (:attr:`LeaderElection.is_leading_until`) and not a flag. Follows client-go v0.37.1,
tools/leaderelection, in what is written and when a Lease is free.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import re
import socket
import uuid
from collections.abc import Callable, Coroutine, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.texts.yaml_documents import mapping_at
from scheduler_core.errors import (
    ClusterWriteError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Problem,
    SchedulerCoreError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_NEVER = float("-inf")


class NotLeadingError(ServerUnavailableError):
    """Raised for a write of a process that does not lead, or no longer leads."""


class WriteFence:
    """Fence that the leader election opens until a time; open forever without leader election.

    Args:
        lease: The Lease as ``namespace/name``; "" without leader election.

    Attributes:
        open_until: Monotonic seconds until which this process may write; minus infinity if it does not lead.
    """

    def __init__(self, clock: Clock, lease: str = "") -> None:
        self._clock = clock
        self._lease = lease
        # Not a flag: a process that was paused and resumes cannot determine how long it was paused, and its next
        # instruction may be a bind.
        self.open_until = _NEVER if lease else float("inf")

    def close(self) -> None:
        self.open_until = _NEVER

    def check(self) -> None:
        """Raise NotLeadingError if this process does not lead, or its time is over."""
        if self._clock.now() >= self.open_until:
            raise NotLeadingError(
                f"Nothing was sent: this process does not hold Lease {self._lease}; the leader does the work."
            )


ANNOTATION = "bayplan.dev/leader-endpoint"
_MAX_LENGTH = 1024
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class LeaderEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """Endpoint of the leader, with the SHA-256 of its certificate in DER, in lower-case hex; "" for plain HTTP."""

    url: str
    certificate_sha256: str = ""


class LeaderState(msgspec.Struct, frozen=True, rename="camel"):
    """The leader, as one replica sees it; without holder "", without an endpoint that can be used None."""

    is_standby: bool
    lease: str = ""
    holder: str = ""
    endpoint: LeaderEndpoint | None = None


class _Announcement(msgspec.Struct, frozen=True, rename="camel"):
    identity: str
    url: str
    certificate_sha256: str = ""


def announcement(identity: str, endpoint: LeaderEndpoint) -> str:
    return msgspec.json.encode(_Announcement(identity, endpoint.url, endpoint.certificate_sha256)).decode()


def announced_endpoint(text: object, holder: str) -> LeaderEndpoint | None:
    """Parse the annotation; None if there is none, another process wrote it, or it must not be connected to."""
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        return None
    try:
        found = msgspec.json.decode(text, type=_Announcement)
    except msgspec.DecodeError:
        return None
    # An earlier holder may have written it.
    endpoint = LeaderEndpoint(found.url, found.certificate_sha256)
    return endpoint if holder and found.identity == holder and not endpoint_problem(endpoint) else None


def endpoint_url(scheme: str, address: str, port: int) -> str:
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}"


def endpoint_problem(endpoint: LeaderEndpoint) -> str:
    """Return why an endpoint must not be connected to; "" if it may be."""
    try:
        parts = urlsplit(endpoint.url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return f"the URL cannot be read: {error}"
    # A user who can write the Lease can choose the endpoint: an IP address and a port, and nothing else.
    problem = address_problem(host)
    if problem:
        return problem
    if not port or endpoint.url != endpoint_url(parts.scheme, host, port):
        return "the URL must be scheme, IP address and port"
    # No token is sent on loopback.
    if parts.scheme == "http":
        return "" if is_loopback(endpoint.url) else "plain HTTP is accepted on loopback only"
    if parts.scheme != "https":
        return f'the scheme must be https, not "{parts.scheme}"'
    # The certificate may be self-signed, so only its hash identifies the leader.
    return "" if _FINGERPRINT.fullmatch(endpoint.certificate_sha256) else "the SHA-256 of the certificate is missing"


def address_problem(text: str) -> str:
    """Return why a text is not the IP address of a replica; "" if it is one."""
    address = _address(text)
    if address is None:
        return f'must be an IP address, not "{text}"'
    # Cloud providers serve credentials at link-local addresses.
    if address.is_link_local or address.is_multicast or address.is_unspecified or str(address) == "255.255.255.255":
        return f"must be the address of one host, not {text}"
    return ""


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is a loopback address."""
    address = _address(urlsplit(url).hostname or "")
    return address is not None and address.is_loopback


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address, also IPv4 written as IPv6; None for a name and for an address with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return None if address.scope_id else address.ipv4_mapped or address
    return address


_ALL_LEASES = "/apis/coordination.k8s.io/v1/leases"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
JITTER = 1.2
"""A standby waits ``retry`` to ``(1 + JITTER) * retry`` seconds, so that standbys do not retry in step."""


class LeadershipLostError(SchedulerCoreError):
    """Raised when the Lease was not renewed in time, or another process holds it: this process must end."""


class ElectionOptions(Struct, frozen=True):
    """The Lease and its durations.

    Attributes:
        lease_seconds: Duration a standby waits after it saw the last renewal before it acquires the Lease.
        renew_seconds: Duration after it sent the last renewal at which the leader stops.
    """

    namespace: str
    name: str
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    @property
    def lease(self) -> str:
        """The Lease, as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def problems(self, prefix: str) -> list[Problem]:
        """Return what is wrong with the durations, by client-go's rules."""
        found = []
        if self.lease_seconds < 1:
            message = f"must be at least 1s, not {self.lease_seconds:g}s: a Lease counts in whole seconds"
            found.append(Problem(f"{prefix}.leaseDuration", message))
        if self.lease_seconds <= self.renew_seconds:
            message = f"must be greater than renewDeadline ({self.renew_seconds:g}s), not {self.lease_seconds:g}s"
            found.append(Problem(f"{prefix}.leaseDuration", message))
        if self.retry_seconds <= 0:
            found.append(Problem(f"{prefix}.retryPeriod", f"must be greater than 0s, not {self.retry_seconds:g}s"))
        if self.renew_seconds <= JITTER * self.retry_seconds:
            message = (
                f"must be greater than {JITTER:g} times retryPeriod ({self.retry_seconds:g}s) to allow a second attempt"
            )
            found.append(Problem(f"{prefix}.renewDeadline", message))
        return found


class _Record(Struct, frozen=True):
    document: dict[str, Any]
    seen_at: float

    @property
    def holder(self) -> str:
        return str(self.spec.get("holderIdentity") or "")

    @property
    def version(self) -> str:
        return str(self.metadata.get("resourceVersion") or "")

    @property
    def transitions(self) -> int:
        return int(self.spec.get("leaseTransitions") or 0)

    @property
    def free_at(self) -> float:
        # By its own duration, because its holder may have other settings.
        return self.seen_at + float(self.spec.get("leaseDurationSeconds") or 0)

    def is_renewal_of(self, earlier: _Record) -> bool:
        """Whether the same holder has renewed the Lease since an earlier version."""
        return self.holder == earlier.holder and self.spec.get("renewTime") != earlier.spec.get("renewTime")

    @property
    def annotations(self) -> Mapping[str, Any]:
        return mapping_at(self.document, "metadata", "annotations")

    @property
    def metadata(self) -> Mapping[str, Any]:
        return mapping_at(self.document, "metadata")

    @property
    def spec(self) -> Mapping[str, Any]:
        return mapping_at(self.document, "spec")


_SEARCH_SECONDS = 30.0


async def other_leader(connection: ApiConnection, options: ElectionOptions, clock: Clock, identity: str = "") -> str:
    """Return who renews a Lease of this name in any namespace, for a process without leader election.

    Args:
        identity: Holder that does not count: this process.

    Returns:
        The holder with its Lease; "" if no Lease is renewed, or if the user may not list Leases.
    """
    seen: dict[object, _Record] = {}
    until = clock.now() + _SEARCH_SECONDS
    while True:
        try:
            answer = await connection.request(ApiRequest("GET", _ALL_LEASES, lane=Lane.READS, params=_named(options)))
        except ClusterWriteError as error:
            log.debug("Leases cannot be listed: %s", error)
            return ""
        for document in msgspec.json.decode(answer).get("items") or ():
            record = _Record(document, clock.now())
            if not record.holder or record.holder == identity:
                continue
            # A holder alone proves nothing: the Lease of a process that crashed has one until it expires.
            if record.is_renewal_of(seen.setdefault(record.metadata.get("namespace"), record)):
                return f"{record.holder} holds Lease {record.metadata.get('namespace')}/{options.name}"
        if clock.now() >= min(until, max((record.free_at for record in seen.values()), default=until)) or not seen:
            return ""
        await clock.sleep(options.retry_seconds)


def _named(options: ElectionOptions) -> tuple[tuple[str, str], ...]:
    return (("fieldSelector", f"metadata.name={options.name}"),)


class LeaderElection:
    """A candidate for the Lease.

    Args:
        clock: Its monotonic time decides; its wall time is only written.
        identity: Unique identity of this process; made of host name, process ID and a UUID if left out.
        endpoint: Returns the endpoint of this process, written with each renewal; None announces nothing.

    Attributes:
        leading: Set when this process leads for the first time.

    Raises:
        ConfigError: The durations contradict each other.
    """

    def __init__(
        self,
        connection: ApiConnection,
        options: ElectionOptions,
        clock: Clock,
        fence: WriteFence,
        *,
        identity: str | None = None,
        endpoint: Callable[[], LeaderEndpoint | None] = lambda: None,
    ) -> None:
        problems = options.problems("leaderElection")
        if problems:
            raise ConfigError(problems)
        self._connection = connection
        self._options = options
        self._clock = clock
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"
        self._endpoint = endpoint
        self.leading = asyncio.Event()
        self._record: _Record | None = None
        self._fence = fence
        self._released = False
        self._last_error = ""
        self._path = _LEASES.format(quote(options.namespace, safe=""))

    @property
    def is_leading_until(self) -> float:
        """Monotonic seconds until which this process may write; minus infinity if it does not lead."""
        return self._fence.open_until

    @property
    def lease(self) -> str:
        return self._options.lease

    @property
    def transitions(self) -> int:
        """Number of changes of the holder, as in the Lease when it was last seen."""
        return self._record.transitions if self._record is not None else 0

    @property
    def holder(self) -> str:
        """Holder of the Lease when it was last seen; empty if it had none."""
        return self._record.holder if self._record is not None else ""

    @property
    def leader_endpoint(self) -> LeaderEndpoint | None:
        """Endpoint of the holder, as in the Lease when it was last seen; None if it announces none."""
        record = self._record
        return announced_endpoint(record.annotations.get(ANNOTATION), record.holder) if record is not None else None

    @property
    def state(self) -> LeaderState:
        if self.leading.is_set():
            return LeaderState(is_standby=False)
        return LeaderState(True, self.lease, self.holder, self.leader_endpoint)

    async def run(self) -> None:
        """Acquire the Lease, however long it takes, and renew it; raises LeadershipLostError when it is lost."""
        log.info("Standing by for Lease %s as %s", self.lease, self.identity)
        while not await self._try(self._acquire(), self._options.renew_seconds / 2):
            await self._clock.sleep(self._retry_delay())
        log.info("Leading: Lease %s was acquired", self.lease)
        self.leading.set()
        while (left := self._fence.open_until - self._clock.now()) > 0:
            await self._clock.sleep(min(self._options.retry_seconds, left))
            # Again, because a sleep may take longer than requested, as on a suspended machine.
            left = self._fence.open_until - self._clock.now()
            if left > 0:
                # Half of the deadline, so that an attempt without a response leaves time for a second one.
                await self._try(self._renew(), min(self._options.renew_seconds / 2, left))
        if not self._released:
            raise self._lost(f"it was not renewed within {self._options.renew_seconds:g} s ({self._last_error})")

    async def be_found(self, report: Callable[[str], None]) -> None:
        """Hold the Lease without leading, for a process without leader election: other processes then find this one.

        One read and one write in a third of the lease duration, or in half of the renew deadline, after which
        :meth:`release` would not clear the holder; ends if the user may not write the Lease.

        Args:
            report: Called with another process that renews the Lease.
        """
        while not self._released:
            earlier = self._record
            try:
                is_held = await self._acquire()
            except ForbiddenError as error:
                log.debug("Lease %s cannot be written, so other processes do not find this one: %s", self.lease, error)
                return
            except ClusterWriteError as error:
                log.debug("Lease %s cannot be written, retrying: %s", self.lease, error)
            else:
                found = self._record
                if not is_held and earlier is not None and found is not None and found.is_renewal_of(earlier):
                    report(f"{found.holder} holds Lease {self.lease}")
            await self._clock.sleep(min(self._options.lease_seconds / 3, self._options.renew_seconds / 2))

    async def release(self, seconds: float) -> None:
        """Clear the Lease's holder within ``seconds``, so that no other leader need wait; call after the last write."""
        led, self._released = self._fence.open_until > self._clock.now(), True
        # First: no write may follow the release.
        self._fence.close()
        if led and await self._try(self._clear_holder(), seconds):
            log.info("Lease %s was released", self.lease)

    def _retry_delay(self) -> float:
        """Return the seconds that a standby waits: a jittered interval, but at most until the Lease expires."""
        pause = self._options.retry_seconds * random.uniform(1.0, 1.0 + JITTER)
        record = self._record
        if record is None or not record.holder:
            return pause
        left = record.free_at - self._clock.now()
        # Unlike client-go, whose standby retries some seconds after the Lease has expired.
        return left if 0.0 < left < pause else pause

    # -- one attempt --------------------------------------------------------------------------------------------

    async def _try(self, attempt: Coroutine[Any, Any, bool], seconds: float) -> bool:
        """Run an attempt with a timeout and return whether it succeeded. A repeated failure is logged once."""
        task = asyncio.ensure_future(attempt)

        def give_up() -> None:
            task.cancel()

        # Not asyncio.timeout: the time is that of the injected clock.
        timer = self._clock.call_later(seconds, give_up)
        try:
            # Not `await task`, which would raise the attempt's own cancellation as that of this task.
            await asyncio.wait([task])
        finally:
            timer.cancel()
            task.cancel()
        error: BaseException | None = (
            WriteTimeoutError(f"no response within {seconds:.1f} s") if task.cancelled() else task.exception()
        )
        if error is None:
            self._last_error = ""
            return task.result()
        # Such as LeadershipLostError, after which nothing may be retried.
        if not isinstance(error, ClusterWriteError):
            raise error
        if str(error) != self._last_error:
            log.warning("Lease %s cannot be written, retrying: %s", self.lease, error)
        self._last_error = str(error)
        return False

    async def _acquire(self) -> bool:
        began = self._clock.now()
        record = await self._read()
        if record is None:
            await self._create()
        elif record.holder and record.holder != self.identity and self._clock.now() < record.free_at:
            return False
        else:
            # The response to an earlier attempt may have been lost: then the holder does not change.
            ours = record.holder == self.identity
            spec = self._renewed(record) if ours else self._spec(self.identity, record.transitions + 1)
            await self._write(record, spec)
        return self._leads_since(began)

    async def _renew(self) -> bool:
        began = self._clock.now()
        record = self._record
        assert record is not None
        try:
            await self._write(record, self._renewed(record))
        except (ConflictError, NotFoundError):
            # An earlier renewal whose response was lost, a user's annotation, or another leader: read which.
            fresh = await self._read()
            if fresh is None:
                await self._create()
            elif fresh.holder != self.identity:
                raise self._lost(f'"{fresh.holder}" holds it') from None
            else:
                await self._write(fresh, self._renewed(fresh))
        return self._leads_since(began)

    async def _clear_holder(self) -> bool:
        # Read first: a renewal that was cancelled in flight may have been executed.
        record = await self._read()
        if record is None or record.holder != self.identity:
            return False
        # One second as client-go writes, because the API server rejects a duration of 0.
        return await self._write(record, self._spec("", record.transitions, 1))

    def _leads_since(self, began: float) -> bool:
        # From before the request, while other replicas count from when they see the renewal: the time ends
        # lease - renew seconds before theirs. Unlike client-go, whose renew deadline counts from the next attempt.
        if not self._released:
            self._fence.open_until = began + self._options.renew_seconds
        return True

    def _lost(self, why: str) -> LeadershipLostError:
        self._fence.close()
        return LeadershipLostError(f"Lease {self.lease} was lost: {why}. This process exits; another one leads.")

    # -- the Lease ----------------------------------------------------------------------------------------------

    def _spec(self, holder: str, transitions: int, lease_seconds: int | None = None) -> dict[str, Any]:
        now = self._clock.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": holder,
            # Rounded up, not down as in client-go: a Lease with a shorter duration than this process relies on would be
            # acquired too early.
            "leaseDurationSeconds": lease_seconds or math.ceil(self._options.lease_seconds),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _renewed(self, record: _Record) -> dict[str, Any]:
        spec = self._spec(self.identity, record.transitions)
        acquired = record.spec.get("acquireTime")
        return {**spec, "acquireTime": acquired or spec["acquireTime"]}

    async def _read(self) -> _Record | None:
        try:
            document = await self._send("GET", f"{self._path}/{quote(self._options.name, safe='')}")
        except NotFoundError:
            return None
        record = _Record(document, self._clock.now())
        known = self._record
        # A version that is known keeps the time when it was first seen; otherwise the Lease would never expire.
        if known is None or known.version != record.version:
            self._record = known = record
        return known

    async def _create(self) -> None:
        metadata = {"name": self._options.name, "namespace": self._options.namespace}
        document = {"metadata": {**metadata, "annotations": self._announced(self.identity, {})}}
        await self._send("POST", self._path, {**document, "spec": self._spec(self.identity, 0)})

    async def _write(self, record: _Record, spec: dict[str, Any]) -> bool:
        annotations = self._announced(spec["holderIdentity"], record.annotations)
        document = {
            # As it was read: its version makes the write of an outdated Lease a conflict, and other fields stay.
            **record.document,
            "metadata": {**record.metadata, "annotations": annotations},
            "spec": {**record.spec, **spec},
        }
        await self._send("PUT", f"{self._path}/{quote(self._options.name, safe='')}", document)
        return True

    def _announced(self, holder: str, annotations: Mapping[str, Any]) -> dict[str, Any]:
        """Return the annotations for a Lease with this holder, "" if it is released."""
        others = {name: value for name, value in annotations.items() if name != ANNOTATION}
        endpoint = self._endpoint() if holder else None
        return others if endpoint is None else {**others, ANNOTATION: announcement(holder, endpoint)}

    async def _send(self, method: str, path: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request; the response to a write is the current Lease."""
        body = None
        if document is not None:
            body = json.dumps({**document, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}).encode()
        seconds = self._options.renew_seconds / 2
        answer = await self._connection.request(ApiRequest(method, path, body, timeout=seconds, lane=Lane.LEASES))
        try:
            found = json.loads(answer)
        except ValueError as error:
            raise ClusterWriteError(f"{method} {path}: the response cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise ClusterWriteError(f"{method} {path}: the response is not a Lease")
        if method != "GET":
            self._record = _Record(found, self._clock.now())
        return found
