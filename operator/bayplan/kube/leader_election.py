"""Leader election on a ``coordination.k8s.io/v1`` Lease: of several processes one schedules.

Owns the Lease and the time until which this process may act on it. Must not know what a leader does.

    standby --free or expired, written by us--> leading --released--> standby for good
                                                  '--not renewed in time, taken by another--> lost

Why an end that others can ask for (:attr:`LeaderElection.is_leading_until`) and not a flag: a process that was stopped
and goes on knows nothing of the time between, and its next instruction may be a bind. It is counted from when the
renewal was *sent*, while others count from when they *see* it, and ends ``lease - renew`` seconds before theirs.

Follows client-go v0.36.3, tools/leaderelection, in what is written and when a lease is free. Differs on purpose: a
standby looks when the lease falls free and not some seconds later; the renew deadline runs from the last success and
not from the next try; and parts of a second of the lease are rounded up, since a Lease that says less than this process
counts on would be taken too early.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import random
import socket
import uuid
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from bayplan.kube.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.leader_endpoint import ANNOTATION, LeaderEndpoint, announced_endpoint, announcement
from scheduler_core.errors import (
    ClusterWriteError,
    ConfigError,
    ConflictError,
    NotFoundError,
    Problem,
    SchedulerCoreError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_NEVER = float("-inf")
JITTER = 1.2
"""A standby's wait is ``retry`` to ``(1 + JITTER) * retry`` seconds, so that standbys do not ask in step."""


class NotLeadingError(ServerUnavailableError):
    """Nothing may be written by this process: it does not lead, or not any more."""


class LeadershipLostError(SchedulerCoreError):
    """The lease was not renewed in time, or another process holds it: this process must end."""


class ElectionOptions(Struct, frozen=True):
    """Which Lease, and its times.

    Attributes:
        namespace: The Lease's namespace.
        name: The Lease's name.
        lease_seconds: So long after a renewal it is seen, others take the lease.
        renew_seconds: So long after its last renewal was sent, a leader stops.
        retry_seconds: Between two tries.
    """

    namespace: str
    name: str
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    def problems(self, prefix: str) -> list[Problem]:
        """What is wrong with the times, as client-go judges them.

        Args:
            prefix: Field path of the settings, such as ``leaderElection``.
        """
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
                f"must be greater than {JITTER:g} times retryPeriod ({self.retry_seconds:g}s), or no second try fits"
            )
            found.append(Problem(f"{prefix}.renewDeadline", message))
        return found


class _Record(Struct, frozen=True):
    """A Lease as it was seen."""

    document: dict[str, Any]
    seen_at: float

    @property
    def holder(self) -> str:
        return str(self._spec.get("holderIdentity") or "")

    @property
    def version(self) -> str:
        return str(self.document.get("metadata", {}).get("resourceVersion") or "")

    @property
    def transitions(self) -> int:
        return int(self._spec.get("leaseTransitions") or 0)

    @property
    def free_at(self) -> float:
        """When it may be taken; its own duration counts, since its holder may be set up in another way."""
        return self.seen_at + float(self._spec.get("leaseDurationSeconds") or 0)

    @property
    def annotations(self) -> dict[str, Any]:
        annotations = self.document.get("metadata", {}).get("annotations")
        return annotations if isinstance(annotations, dict) else {}

    @property
    def _spec(self) -> dict[str, Any]:
        spec = self.document.get("spec")
        return spec if isinstance(spec, dict) else {}


class LeaderElection:
    """One candidate.

    Args:
        connection: To the API server.
        options: Which Lease, and its times.
        clock: Monotonic time counts; the wall clock is only written down.
        identity: This process, unlike any other; made of host name and a random part when left out.
        endpoint: Returns where this process serves, written into the Lease with each renewal; None announces nothing.

    Attributes:
        identity: As it stands in the Lease.
        leading: Set when this process leads for the first time.

    Raises:
        ConfigError: The times do not go together.
    """

    def __init__(
        self,
        connection: ApiConnection,
        options: ElectionOptions,
        clock: Clock,
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
        self._until = _NEVER
        self._released = False
        self._told = ""
        self._path = _LEASES.format(quote(options.namespace, safe=""))

    @property
    def is_leading_until(self) -> float:
        """Monotonic seconds until which this process may write; minus infinity when it does not lead."""
        return self._until

    @property
    def lease(self) -> str:
        """The Lease, as ``namespace/name``."""
        return self._name

    @property
    def transitions(self) -> int:
        """How often the Lease has changed hands, as it said itself when it was last seen."""
        return self._record.transitions if self._record is not None else 0

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen; empty when nobody did."""
        return self._record.holder if self._record is not None else ""

    @property
    def leader_endpoint(self) -> LeaderEndpoint | None:
        """Where the holder of the Lease serves, as the Lease said when it was last seen; None if it does not say."""
        record = self._record
        return announced_endpoint(record.annotations.get(ANNOTATION), record.holder) if record is not None else None

    def check(self) -> None:
        """Refuse what must only be sent by the leader.

        Raises:
            NotLeadingError: The time is over, or has not begun.
        """
        if self._clock.now() >= self._until:
            raise NotLeadingError(
                f"Nothing was sent, since this process does not hold Lease {self._name}; its leader does the work."
            )

    async def run(self) -> None:
        """Become the leader, however long it takes, and stay it.

        Raises:
            LeadershipLostError: It was the leader and is not any more.
        """
        log.info("Standing by for Lease %s as %s", self._name, self.identity)
        while not await self._try(self._acquire(), self._options.renew_seconds / 2):
            await self._clock.sleep(self._until_next_look())
        log.info("Leading: Lease %s was acquired", self._name)
        self.leading.set()
        while (left := self._until - self._clock.now()) > 0:
            await self._clock.sleep(min(self._options.retry_seconds, left))
            left = self._until - self._clock.now()
            if left > 0:
                await self._try(self._renew(), min(self._options.renew_seconds / 2, left))
        if not self._released:
            raise self._lost(f"it was not renewed within {self._options.renew_seconds:g} s ({self._told})")

    async def release(self, seconds: float) -> None:
        """Stop leading and say so in the Lease, so that the next leader need not wait; call it after the last write.

        Args:
            seconds: Longest that it may take; the lease ends by itself otherwise.
        """
        led, self._until, self._released = self._until > self._clock.now(), _NEVER, True
        if led and await self._try(self._give_back(), seconds):
            log.info("Lease %s was released", self._name)

    def _until_next_look(self) -> float:
        """Seconds that a standby waits: a jittered pause, but never past the moment when the Lease falls free."""
        pause = self._options.retry_seconds * random.uniform(1.0, 1.0 + JITTER)
        record = self._record
        if record is None or not record.holder:
            return pause
        left = record.free_at - self._clock.now()
        return left if 0.0 < left < pause else pause

    # -- one try ------------------------------------------------------------------------------------------------

    async def _try(self, attempt: Coroutine[Any, Any, bool], seconds: float) -> bool:
        """Make one attempt within a time; whether it succeeded. What failed is told once."""
        task = asyncio.ensure_future(attempt)

        def give_up() -> None:
            task.cancel()

        timer = self._clock.call_later(seconds, give_up)
        try:
            await asyncio.wait([task])
        finally:
            timer.cancel()
            task.cancel()
        error: BaseException | None = (
            WriteTimeoutError(f"no answer within {seconds:.1f} s") if task.cancelled() else task.exception()
        )
        if error is None:
            self._told = ""
            return task.result()
        if not isinstance(error, ClusterWriteError):
            raise error
        if str(error) != self._told:
            log.warning("Lease %s cannot be written, trying again: %s", self._name, error)
        self._told = str(error)
        return False

    async def _acquire(self) -> bool:
        began = self._clock.now()
        record = await self._read()
        if record is None:
            await self._create()
        elif record.holder and record.holder != self.identity and self._clock.now() < record.free_at:
            return False
        else:
            ours = record.holder == self.identity
            await self._write(record, self._spec(self.identity, record.transitions + (not ours)))
        return self._leads_since(began)

    async def _renew(self) -> bool:
        began = self._clock.now()
        record = self._record
        assert record is not None
        try:
            await self._write(record, self._renewed(record))
        except (ConflictError, NotFoundError):
            # An earlier renewal whose answer was lost, an annotation by somebody, or another leader: look which.
            fresh = await self._read()
            if fresh is None:
                await self._create()
            elif fresh.holder != self.identity:
                raise self._lost(f'"{fresh.holder}" holds it now') from None
            else:
                await self._write(fresh, self._renewed(fresh))
        return self._leads_since(began)

    async def _give_back(self) -> bool:
        # Read first: a renewal may have been cancelled on its way, and carried out.
        record = await self._read()
        if record is None or record.holder != self.identity:
            return False
        return await self._write(record, self._spec("", record.transitions, 1))

    def _leads_since(self, began: float) -> bool:
        if not self._released:
            self._until = began + self._options.renew_seconds
        return True

    def _lost(self, why: str) -> LeadershipLostError:
        self._until = _NEVER
        return LeadershipLostError(f"Lease {self._name} was lost: {why}. This process ends; another one leads.")

    # -- the Lease ----------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self._options.namespace}/{self._options.name}"

    def _spec(self, holder: str, transitions: int, lease_seconds: int | None = None) -> dict[str, Any]:
        now = self._clock.wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": lease_seconds or math.ceil(self._options.lease_seconds),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _renewed(self, record: _Record) -> dict[str, Any]:
        spec = self._spec(self.identity, record.transitions)
        acquired = record.document.get("spec", {}).get("acquireTime")
        return {**spec, "acquireTime": acquired or spec["acquireTime"]}

    async def _read(self) -> _Record | None:
        """The Lease; a version that was seen before keeps the time when it was seen first."""
        try:
            document = await self._send("GET", f"{self._path}/{quote(self._options.name, safe='')}")
        except NotFoundError:
            return None
        record = _Record(document, self._clock.now())
        known = self._record
        if known is None or known.version != record.version:
            self._record = known = record
        return known

    async def _create(self) -> None:
        metadata = {"name": self._options.name, "namespace": self._options.namespace}
        document = {"metadata": {**metadata, "annotations": self._announced(self.identity, {})}}
        await self._send("POST", self._path, {**document, "spec": self._spec(self.identity, 0)})

    async def _write(self, record: _Record, spec: dict[str, Any]) -> bool:
        kept = record.document.get("spec")
        annotations = self._announced(spec["holderIdentity"], record.annotations)
        document = {
            **record.document,
            "metadata": {**record.document.get("metadata", {}), "annotations": annotations},
            "spec": {**(kept if isinstance(kept, dict) else {}), **spec},
        }
        await self._send("PUT", f"{self._path}/{quote(self._options.name, safe='')}", document)
        return True

    def _announced(self, holder: str, annotations: dict[str, Any]) -> dict[str, Any]:
        """Annotations of a Lease that a holder is written into, "" if it is released."""
        others = {name: value for name, value in annotations.items() if name != ANNOTATION}
        endpoint = self._endpoint() if holder else None
        return others if endpoint is None else {**others, ANNOTATION: announcement(holder, endpoint)}

    async def _send(self, method: str, path: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the API server; what a write answers is the Lease as it is now."""
        body = None
        if document is not None:
            body = json.dumps({**document, "apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}).encode()
        seconds = self._options.renew_seconds / 2
        answer = await self._connection.request(ApiRequest(method, path, body, timeout=seconds, lane=Lane.LEASES))
        try:
            found = json.loads(answer)
        except ValueError as error:
            raise ClusterWriteError(f"{method} {path}: the answer cannot be read: {error}") from error
        if not isinstance(found, dict):
            raise ClusterWriteError(f"{method} {path}: the answer is no Lease")
        if method != "GET":
            self._record = _Record(found, self._clock.now())
        return found
