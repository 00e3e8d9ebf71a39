"""Client of one extender: request bodies, validation of responses, and counts.

An error in an extender's response does not count against its circuit: the extender is reachable and has evaluated the
pod. Timeouts, broken connections, status codes other than 200 and unreadable responses do count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from bayplan.extenders import json_bodies
from bayplan.extenders.transport import Transport
from bayplan.kube.timing import Backoff
from scheduler_core.config.profile_config import Extender
from scheduler_core.errors import ExtenderError, SchedulerCoreError
from scheduler_core.metrics.histogram import Histogram
from scheduler_core.metrics.scheduler_metrics import ATTEMPT_BOUNDS
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, Clock, ExtenderVerdict, NodeVictims
from scheduler_core.runtime.framework_instance import FrameworkInstance


class CircuitState(StrEnum):
    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class CircuitOptions(Struct, frozen=True):
    """When a circuit opens, and for how long, before jitter; without a seed that is random."""

    failures: int = 5
    initial_seconds: float = 1.0
    maximum_seconds: float = 30.0
    seed: int | None = None


class Circuit:
    """A circuit, closed at first.

    Attributes:
        since: When the state last changed; None if it never did.
        until: End of the time that it stays open, while it is open.
        last_error: Reason of the last failure; it stays after a success.
    """

    def __init__(self, clock: Clock, options: CircuitOptions, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._limit = options.failures
        self._backoff = Backoff(options.initial_seconds, options.maximum_seconds, options.seed)
        self._on_change = on_change
        self._failures = 0
        self._reopens_at = 0.0
        self.state = CircuitState.CLOSED
        self.since: datetime | None = None
        self.until: datetime | None = None
        self.last_error = ""

    def admits(self) -> bool:
        """Return whether a call may be made; its caller reports the outcome by one of the three methods below."""
        if self.state is CircuitState.CLOSED:
            return True
        if self.state is CircuitState.OPEN and self._clock.now() >= self._reopens_at:
            self._become(CircuitState.HALF_OPEN)
            return True
        return False

    def succeeded(self) -> None:
        self._failures = 0
        if self.state is not CircuitState.CLOSED:
            self._backoff.reset()
            self._become(CircuitState.CLOSED)

    def failed(self, reason: str) -> None:
        self.last_error = reason
        self._failures += 1
        if self.state is CircuitState.HALF_OPEN or (
            self.state is CircuitState.CLOSED and self._failures >= self._limit
        ):
            self._open()

    def abandoned(self) -> None:
        """Record a call that this side aborted; if it was that of a half-open circuit, the next one is allowed."""
        if self.state is CircuitState.HALF_OPEN:
            self._become(CircuitState.OPEN)

    def _open(self) -> None:
        delay = self._backoff.next_delay()
        self._reopens_at = self._clock.now() + delay
        self.until = self._clock.wall() + timedelta(seconds=delay)
        self._become(CircuitState.OPEN)

    def _become(self, state: CircuitState) -> None:
        self.state = state
        self.since = self._clock.wall()
        self._on_change()


T = TypeVar("T")


class CallTally:
    """Durations and errors of the calls to one extender.

    They are stored by extender, not by client: an edited profile gets new clients, and a counter must never decrease.

    Attributes:
        durations: Seconds of calls by extension point.
    """

    def __init__(self) -> None:
        self.durations: dict[str, Histogram] = {}
        self.errors: dict[str, int] = {}

    def observe(self, point: str, seconds: float) -> None:
        histogram = self.durations.get(point)
        if histogram is None:
            histogram = self.durations[point] = Histogram(ATTEMPT_BOUNDS)
        histogram.observe(seconds)
        self.errors.setdefault(point, 0)

    def count_error(self, point: str) -> None:
        self.errors[point] = self.errors.get(point, 0) + 1


class ExtenderObjects(Protocol):
    """The cluster's objects as far as extenders get or name them: as JSON, without those that are gone."""

    async def pod(self, pod: Pod) -> bytes | None: ...

    async def pods(self, pods: Sequence[Pod]) -> Mapping[str, bytes]:
        """Return the JSON of pods by UID."""

    async def nodes(self, names: Sequence[str]) -> Mapping[str, bytes]: ...

    def has_node(self, name: str) -> bool: ...

    def pod_on(self, node_name: str, uid: str) -> Pod | None: ...


class ExtenderReading(Struct, frozen=True):
    """State of an extender's circuit at one moment; ``since`` is the time of its last change, None for none."""

    url_prefix: str
    state: CircuitState
    last_error: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class ExtenderParts:
    """The parts of a client; the write fence raises if this process must not bind pods because it does not lead."""

    transport: Transport
    circuit: Circuit
    objects: ExtenderObjects
    tally: CallTally
    clock: Clock
    on_close: Callable[[], None]
    write_fence: Callable[[], None] = lambda: None


class HttpExtender:
    """Implementation of :class:`scheduler_core.ports.ExtenderClient`."""

    def __init__(self, extender: Extender, parts: ExtenderParts) -> None:
        self._extender = extender
        self._parts = parts
        self._closed = False

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def state(self) -> ExtenderReading:
        circuit = self._parts.circuit
        return ExtenderReading(self._extender.url_prefix, circuit.state, circuit.last_error, circuit.since)

    async def filter(self, pod: Pod, node_names: Sequence[str]) -> ExtenderVerdict:
        """Filter nodes for a pod; see :class:`scheduler_core.ports.ExtenderClient`."""
        verb = self._extender.filter_verb
        if not verb:
            return ExtenderVerdict(tuple(node_names))
        call = _Call("filter", verb, lambda: self._nodes_body(pod, node_names))
        answer = await self._send(call, json_bodies.read_filter)
        if answer.error:
            raise self._response_error("filter", answer.error)
        left: tuple[str, ...] = ()
        if self._extender.node_cache_capable and answer.node_names is not None:
            left, sent = answer.node_names, set(node_names)
            for name in left:
                if name not in sent:
                    message = f'claims a filtered node "{name}" which is not found in the input node list'
                    raise self._response_error("filter", message)
        elif answer.nodes is not None:
            left = answer.nodes
        return ExtenderVerdict(left, answer.failed, answer.unresolvable)

    async def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Return scores; see :class:`scheduler_core.ports.ExtenderClient`."""
        verb = self._extender.prioritize_verb
        if not verb:
            return dict.fromkeys(node_names, 0)
        call = _Call("prioritize", verb, lambda: self._nodes_body(pod, node_names))
        return await self._send(call, json_bodies.read_scores)

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Filter the candidates of a preemption; see :class:`scheduler_core.ports.ExtenderClient`."""
        verb = self._extender.preempt_verb
        if not verb:
            return victims
        call = _Call("preempt", verb, lambda: self._victims_body(pod, victims))
        response = await self._send(call, json_bodies.read_victims)
        return {node: self._victims(node, chosen, victims.get(node)) for node, chosen in response.items()}

    async def bind(self, binding: Binding) -> None:
        """Let the extender bind a pod; see :class:`scheduler_core.ports.ExtenderClient`."""

        async def body() -> bytes:
            self._parts.write_fence()
            return json_bodies.binding_body(binding)

        # A repeated bind may find the pod bound by the first one and return an error.
        call = _Call("bind", self._extender.bind_verb, body, repeat=False)
        error = await self._send(call, json_bodies.read_binding_error)
        if error:
            raise self._response_error("bind", error)

    async def close(self) -> None:
        """Close connections and drop the objects stored for this extender; harmless the second time."""
        if not self._closed:
            self._closed = True
            self._parts.on_close()
            await self._parts.transport.close()

    # -- calls --------------------------------------------------------------------------------------------------

    async def _send(self, call: _Call, read: Callable[[bytes], T]) -> T:
        parts = self._parts
        if not parts.circuit.admits():
            raise self._refusal()
        ended = False
        try:
            # The body is made before the timeout starts: a slow API server is not the extender's fault.
            body = await self._body(call)
            began = parts.clock.now()
            try:
                answer = await parts.transport.send(call.verb, body, repeat=call.repeat)
                result = read(answer)
            except ExtenderError as error:
                ended = True
                self._record_failure(call, error)
                raise
            except (msgspec.DecodeError, RecursionError) as error:
                ended = True
                unreadable = self._unreadable(call, error)
                self._record_failure(call, unreadable)
                raise unreadable from error
            finally:
                parts.tally.observe(call.point, parts.clock.now() - began)
            ended = True
            parts.circuit.succeeded()
            return result
        finally:
            if not ended:
                parts.circuit.abandoned()

    async def _body(self, call: _Call) -> bytes:
        try:
            return await call.body()
        except ExtenderError:
            raise
        except SchedulerCoreError as error:
            reason = f"not called: its request could not be made: {error}; it is called when the API server responds"
            raise ExtenderError(self._extender.url_prefix, reason) from error

    def _record_failure(self, call: _Call, error: ExtenderError) -> None:
        self._parts.tally.count_error(call.point)
        self._parts.circuit.failed(error.reason)

    def _unreadable(self, call: _Call, error: Exception) -> ExtenderError:
        reason = f"sent an unreadable response to {call.verb}: {error}; correct the extender"
        return ExtenderError(self._extender.url_prefix, reason)

    def _response_error(self, point: str, error: str) -> ExtenderError:
        self._parts.tally.count_error(point)
        return ExtenderError(self._extender.url_prefix, error)

    def _refusal(self) -> ExtenderError:
        circuit = self._parts.circuit
        if circuit.state is CircuitState.HALF_OPEN or circuit.until is None:
            when = "circuit open until the current trial call has ended"
        else:
            when = f"circuit open until {circuit.until:%H:%M:%S.%f}"[:-3] + "Z"
        return ExtenderError(self._extender.url_prefix, f"{when}; last error: {circuit.last_error}")

    # -- request bodies -----------------------------------------------------------------------------------------

    async def _nodes_body(self, pod: Pod, node_names: Sequence[str]) -> bytes:
        pod_json = await self._pod_json(pod)
        if self._extender.node_cache_capable:
            return json_bodies.names_body(pod_json, node_names)
        nodes = await self._parts.objects.nodes(node_names)
        return json_bodies.nodes_body(pod_json, [nodes[name] for name in node_names if name in nodes])

    async def _victims_body(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> bytes:
        pod_json = await self._pod_json(pod)
        if self._extender.node_cache_capable:
            uids = {
                node: json_bodies.SentVictims([victim.metadata.uid for victim in chosen.pods], chosen.pdb_violations)
                for node, chosen in victims.items()
            }
            return json_bodies.uid_victims_body(pod_json, uids)
        pods = await self._parts.objects.pods([victim for chosen in victims.values() for victim in chosen.pods])
        whole = {
            node: json_bodies.SentVictims(
                [
                    json_bodies.on_node(pods[victim.metadata.uid], node)
                    for victim in chosen.pods
                    if victim.metadata.uid in pods
                ],
                chosen.pdb_violations,
            )
            for node, chosen in victims.items()
        }
        return json_bodies.victims_body(pod_json, whole)

    async def _pod_json(self, pod: Pod) -> bytes:
        pod_json = await self._parts.objects.pod(pod)
        if pod_json is None:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            raise ExtenderError(self._extender.url_prefix, f"not called for pod {name}, which is gone")
        return pod_json

    # -- responses ----------------------------------------------------------------------------------------------

    def _victims(self, node: str, chosen: json_bodies.ChosenVictims, sent: NodeVictims | None) -> NodeVictims:
        objects = self._parts.objects
        if sent is None and not objects.has_node(node):
            raise self._response_error("preempt", f'claims to preempt on node "{node}", which does not exist')
        known = {victim.metadata.uid: victim for victim in (sent.pods if sent else ())}
        pods = []
        for uid in chosen.uids:
            pod = known.get(uid) or objects.pod_on(node, uid)
            if pod is None:
                message = f"claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node"
                raise self._response_error("preempt", message)
            pods.append(pod)
        return NodeVictims(tuple(pods), chosen.violations)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call to the path ``verb`` below the URL prefix; ``repeat`` is whether it may be sent twice."""

    point: str
    verb: str
    body: Callable[[], Awaitable[bytes]]
    repeat: bool = True


def extenders_skipped_notice(extenders: Sequence[Extender]) -> str:
    """Return the sentence that extenders are not called outside the running operator; empty without extenders."""
    if not extenders:
        return ""
    urls = ", ".join(extender.url_prefix for extender in extenders)
    return f"Extenders are not called here, unlike in the running operator: {urls}."


def extender_states(instance: FrameworkInstance) -> tuple[ExtenderReading, ...]:
    """Return the states of a live profile's extenders, in the order of its spec."""
    order = [extender.url_prefix for extender in instance.config.extenders]
    # Read as an attribute: while decisions are recorded the client is one that records, and passes it on.
    states = [getattr(runner.client, "state", None) for runner in instance.extenders]
    found = [state for state in states if isinstance(state, ExtenderReading)]
    return tuple(sorted(found, key=lambda state: order.index(state.url_prefix)))
