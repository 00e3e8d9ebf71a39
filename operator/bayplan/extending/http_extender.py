"""An extender that is asked over HTTP.

Owns what each call sends, how an answer is judged, and what is counted. It must not know who asks and when.

Why an error that an extender answers does not count against its circuit: it is there and has looked at the pod; only
silence, broken connections, other statuses than 200 and answers that nobody can read tell that it is not well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from bayplan.extending import wire
from bayplan.extending.circuit import Circuit, CircuitState
from bayplan.extending.tally import Tally
from bayplan.extending.transport import Transport
from scheduler_core.config.extender_config import Extender
from scheduler_core.errors import ExtenderError, SchedulerCoreError
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, Clock, ExtenderVerdict, NodeVictims

T = TypeVar("T")


class ExtenderObjects(Protocol):
    """The cluster's objects, as far as extenders are shown them or name them."""

    async def pod(self, pod: Pod) -> bytes | None:
        """A pod's JSON; None when it is gone."""

    async def pods(self, pods: Sequence[Pod]) -> Mapping[str, bytes]:
        """The JSON of pods by UID; without those that are gone."""

    async def nodes(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """The JSON of nodes by name; without those that are gone."""

    def knows_node(self, name: str) -> bool:
        """Whether there is such a node."""

    def pod_on(self, node_name: str, uid: str) -> Pod | None:
        """A pod on a node; None when it is not there."""


class ExtenderState(Struct, frozen=True):
    """How an extender is, as its profile's status tells.

    Attributes:
        url_prefix: The extender.
        state: Of its circuit.
        last_error: The last reason why it could not be asked.
        since: When the circuit's state last changed; None when it never did.
    """

    url_prefix: str
    state: CircuitState
    last_error: str
    since: datetime | None


class ExtenderParts(Struct, frozen=True):
    """What a client works with.

    Attributes:
        transport: Its connections.
        circuit: Lets its calls through.
        objects: What it is shown.
        tally: Where its calls are counted.
        clock: Time.
        on_close: Told when it is closed.
        write_fence: Raises when this process must not have pods bound: it does not lead, or not any more.
    """

    transport: Transport
    circuit: Circuit
    objects: ExtenderObjects
    tally: Tally
    clock: Clock
    on_close: Callable[[], None]
    write_fence: Callable[[], None] = lambda: None


class HttpExtender:
    """Fulfils :class:`scheduler_core.ports.ExtenderClient`.

    Args:
        extender: Its configuration.
        parts: What it works with.
    """

    def __init__(self, extender: Extender, parts: ExtenderParts) -> None:
        self._extender = extender
        self._parts = parts
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether it is no longer used."""
        return self._closed

    @property
    def state(self) -> ExtenderState:
        """How it is."""
        circuit = self._parts.circuit
        return ExtenderState(self._extender.url_prefix, circuit.state, circuit.last_error, circuit.since)

    async def filter(self, pod: Pod, node_names: Sequence[str]) -> ExtenderVerdict:
        """Ask which of some nodes a pod may have; see :class:`scheduler_core.ports.ExtenderClient`."""
        verb = self._extender.filter_verb
        if not verb:
            return ExtenderVerdict(tuple(node_names))
        call = _Call("filter", verb, lambda: self._about_nodes(pod, node_names))
        answer = await self._ask(call, wire.read_filter)
        if answer.error:
            raise self._answered("filter", answer.error)
        left: tuple[str, ...] = ()
        if self._extender.node_cache_capable and answer.node_names is not None:
            left, asked = answer.node_names, set(node_names)
            for name in left:
                if name not in asked:
                    message = f'claims a filtered node "{name}" which is not found in the input node list'
                    raise self._answered("filter", message)
        elif answer.nodes is not None:
            left = answer.nodes
        return ExtenderVerdict(left, answer.failed, answer.unresolvable)

    async def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Ask for scores; see :class:`scheduler_core.ports.ExtenderClient`."""
        verb = self._extender.prioritize_verb
        if not verb:
            return dict.fromkeys(node_names, 0)
        call = _Call("prioritize", verb, lambda: self._about_nodes(pod, node_names))
        return await self._ask(call, wire.read_scores)

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Ask which candidates of a preemption it leaves; see :class:`scheduler_core.ports.ExtenderClient`."""
        verb = self._extender.preempt_verb
        if not verb:
            return victims
        call = _Call("preempt", verb, lambda: self._about_victims(pod, victims))
        chosen = await self._ask(call, wire.read_victims)
        return {node: self._victims(node, told, victims.get(node)) for node, told in chosen.items()}

    async def bind(self, binding: Binding) -> None:
        """Let it bind a pod; see :class:`scheduler_core.ports.ExtenderClient`."""

        async def body() -> bytes:
            self._parts.write_fence()
            return wire.binding_body(binding)

        # A bind that is repeated may find the pod bound by the first one and answer an error.
        call = _Call("bind", self._extender.bind_verb, body, repeat=False)
        error = await self._ask(call, wire.read_binding_error)
        if error:
            raise self._answered("bind", error)

    async def close(self) -> None:
        """Drop connections and what is kept for this extender; harmless the second time."""
        if not self._closed:
            self._closed = True
            self._parts.on_close()
            await self._parts.transport.close()

    # -- asking -------------------------------------------------------------------------------------------------

    async def _ask(self, call: _Call, read: Callable[[bytes], T]) -> T:
        parts = self._parts
        if not parts.circuit.admits():
            raise self._refusal()
        ended = False
        try:
            # What is to be shown is read before the time counts: a slow API server is not the extender's fault.
            body = await self._made(call)
            began = parts.clock.now()
            try:
                answer = await parts.transport.send(call.verb, body, repeat=call.repeat)
                result = read(answer)
            except ExtenderError as error:
                ended = True
                self._note_failure(call, error)
                raise
            except (msgspec.DecodeError, RecursionError) as error:
                ended = True
                unreadable = self._unreadable(call, error)
                self._note_failure(call, unreadable)
                raise unreadable from error
            finally:
                parts.tally.observe(call.point, parts.clock.now() - began)
            ended = True
            parts.circuit.succeeded()
            return result
        finally:
            if not ended:
                parts.circuit.abandoned()

    async def _made(self, call: _Call) -> bytes:
        try:
            return await call.body()
        except ExtenderError:
            raise
        except SchedulerCoreError as error:
            reason = f"cannot be shown what it is asked about: {error}; it is asked when the API server answers again"
            raise ExtenderError(self._extender.url_prefix, reason) from error

    def _note_failure(self, call: _Call, error: ExtenderError) -> None:
        self._parts.tally.count_error(call.point)
        self._parts.circuit.failed(error.reason)

    def _unreadable(self, call: _Call, error: Exception) -> ExtenderError:
        reason = f"answered {call.verb} with what cannot be read: {error}; correct the extender"
        return ExtenderError(self._extender.url_prefix, reason)

    def _answered(self, point: str, error: str) -> ExtenderError:
        self._parts.tally.count_error(point)
        return ExtenderError(self._extender.url_prefix, error)

    def _refusal(self) -> ExtenderError:
        circuit = self._parts.circuit
        if circuit.state is CircuitState.HALF_OPEN or circuit.until is None:
            when = "circuit open until the call that tries it has ended"
        else:
            when = f"circuit open until {circuit.until:%H:%M:%S.%f}"[:-3] + "Z"
        return ExtenderError(self._extender.url_prefix, f"{when}; last error: {circuit.last_error}")

    # -- what is sent -------------------------------------------------------------------------------------------

    async def _about_nodes(self, pod: Pod, node_names: Sequence[str]) -> bytes:
        shown = await self._shown(pod)
        if self._extender.node_cache_capable:
            return wire.names_body(shown, node_names)
        nodes = await self._parts.objects.nodes(node_names)
        return wire.nodes_body(shown, [nodes[name] for name in node_names if name in nodes])

    async def _about_victims(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> bytes:
        shown = await self._shown(pod)
        if self._extender.node_cache_capable:
            uids = {
                node: wire.SentVictims([victim.metadata.uid for victim in told.pods], told.pdb_violations)
                for node, told in victims.items()
            }
            return wire.uid_victims_body(shown, uids)
        pods = await self._parts.objects.pods([victim for told in victims.values() for victim in told.pods])
        whole = {
            node: wire.SentVictims(
                [wire.on_node(pods[victim.metadata.uid], node) for victim in told.pods if victim.metadata.uid in pods],
                told.pdb_violations,
            )
            for node, told in victims.items()
        }
        return wire.victims_body(shown, whole)

    async def _shown(self, pod: Pod) -> bytes:
        shown = await self._parts.objects.pod(pod)
        if shown is None:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            raise ExtenderError(self._extender.url_prefix, f"is not asked about pod {name}, which is gone")
        return shown

    # -- what is answered ---------------------------------------------------------------------------------------

    def _victims(self, node: str, chosen: wire.ChosenVictims, sent: NodeVictims | None) -> NodeVictims:
        objects = self._parts.objects
        if sent is None and not objects.knows_node(node):
            raise self._answered("preempt", f'claims to preempt on node "{node}", which is not known')
        known = {victim.metadata.uid: victim for victim in (sent.pods if sent else ())}
        pods = []
        for uid in chosen.uids:
            pod = known.get(uid) or objects.pod_on(node, uid)
            if pod is None:
                message = f"claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node"
                raise self._answered("preempt", message)
            pods.append(pod)
        return NodeVictims(tuple(pods), chosen.violations)


class _Call(Struct, frozen=True):
    """One call.

    Attributes:
        point: What is asked, for counts.
        verb: What follows the URL prefix.
        body: Makes what is sent.
        repeat: Whether it does no harm to ask twice.
    """

    point: str
    verb: str
    body: Callable[[], Awaitable[bytes]]
    repeat: bool = True
