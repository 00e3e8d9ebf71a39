"""Extender clients in memory with scripted responses, and a scheduler that calls them.

A :class:`ScriptedExtender` implements :class:`scheduler_core.ports.ExtenderClient`, records its calls, and can delay
its responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import Extender, ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.errors import ExtenderError
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, ExtenderVerdict, NodeVictims, StorageWriter
from scheduler_core.scheduler import SchedulerPorts
from tests.support.scheduling import DEFAULT_NAME, Rig, rig

FilterScript = Callable[[Sequence[str]], ExtenderVerdict]
PreemptScript = Callable[[Mapping[str, NodeVictims]], Mapping[str, NodeVictims]]
ALL_VERBS = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt"}


def passes_only(
    *names: str, failed: Mapping[str, str] | None = None, unresolvable: Mapping[str, str] | None = None
) -> FilterScript:
    """Return a filter response that lets only ``names`` pass."""
    return lambda candidates: ExtenderVerdict(
        tuple(name for name in candidates if name in names), dict(failed or {}), dict(unresolvable or {})
    )


@dataclass(eq=False)
class ScriptedExtender:
    """Client of one extender.

    Attributes:
        on_filter: Returns the response to filter; by default every node passes.
        scores: Response to prioritize.
        on_preempt: Returns the response to preempt; by default every candidate remains.
        on_bind: Called with each binding before the response.
        faults: Error that each call of a verb raises.
        calls: Verb and node names of every call, in order.
        closed: Number of calls of :meth:`close`.
    """

    url: str = "http://extender"
    on_filter: FilterScript = field(default=lambda candidates: ExtenderVerdict(tuple(candidates)))
    scores: Mapping[str, int] = field(default_factory=dict)
    on_preempt: PreemptScript = field(default=dict)
    on_bind: Callable[[Binding], None] = field(default=lambda _: None)
    faults: dict[str, Exception] = field(default_factory=dict)
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    closed: int = 0
    _once: set[str] = field(default_factory=set)
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Respond immediately until :meth:`hold` is called."""
        self._open.set()

    def hold(self) -> None:
        """Delay all responses until :meth:`release`."""
        self._open.clear()

    def release(self) -> None:
        """Respond to the delayed calls, and to later calls immediately."""
        self._open.set()

    def fail(self, verb: str, reason: str = "away") -> None:
        """Raise an error at each further call of a verb."""
        self.faults[verb] = ExtenderError(self.url, reason)

    def fail_once(self, verb: str) -> None:
        """Raise an error at the next call of a verb only."""
        self.fail(verb)
        self._once.add(verb)

    def called_verbs(self) -> list[str]:
        """Return the called verbs in order."""
        return [verb for verb, _ in self.calls]

    async def _call(self, verb: str, names: Sequence[str]) -> None:
        self.calls.append((verb, tuple(names)))
        await asyncio.sleep(0)
        await self._open.wait()
        fault = self.faults.get(verb)
        if verb in self._once:
            self._once.discard(verb)
            del self.faults[verb]
        if fault is not None:
            raise fault

    async def filter(self, pod: Pod, node_names: Sequence[str]) -> ExtenderVerdict:
        """Return the response of :attr:`on_filter`."""
        await self._call("filter", node_names)
        return self.on_filter(node_names)

    async def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Return :attr:`scores`."""
        await self._call("prioritize", node_names)
        return self.scores

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Return the response of :attr:`on_preempt`."""
        await self._call("preempt", tuple(victims))
        return self.on_preempt(victims)

    async def bind(self, binding: Binding) -> None:
        """Call :attr:`on_bind`, then raise the scripted error, if any."""
        self.on_bind(binding)
        await self._call("bind", (binding.node_name,))

    async def close(self) -> None:
        """Count the call."""
        await asyncio.sleep(0)
        self.closed += 1


def extender(url: str = "http://extender", **fields: object) -> Extender:
    """Return the configuration of an extender; by default it filters, scores and preempts, with weight 1."""
    return Extender.model_validate({"urlPrefix": url, "weight": 1, **ALL_VERBS, **fields})


def extender_profile(*extenders: Extender, name: str = DEFAULT_NAME, percentage: int | None = None) -> ProfileConfig:
    """Return a profile with extenders."""
    return ProfileConfig(scheduler_name=name, extenders=extenders, percentage_of_nodes_to_score=percentage)


def extender_rig(
    *pairs: tuple[Extender, ScriptedExtender],
    plugins: Sequence[type[Plugin]] = (),
    defaults: Plugins | None = None,
    percentage: int | None = None,
    storage: StorageWriter | None = None,
) -> Rig:
    """Return a scheduler whose default profile has extenders, each with the client of its ``urlPrefix``."""
    clients = {config.url_prefix: client for config, client in pairs}
    ports = SchedulerPorts(storage=storage, make_extender=lambda _, config: clients[config.url_prefix])
    made = rig(plugins, defaults=defaults, serve=False, ports=ports)
    made.serve(extender_profile(*(config for config, _ in pairs), percentage=percentage))
    return made


async def decide(made: Rig) -> Attempt | None:
    """Pop the next pod and run its scheduling cycle."""
    return await made.scheduler.cycles.extended.schedule(made.pop())


async def schedule_and_bind(made: Rig) -> str:
    """Pop the next pod and run both cycles; return the node that it was bound to, "" for none."""
    attempt = await decide(made)
    if attempt is None:
        return ""
    node_name = attempt.node_name
    return node_name if await made.scheduler.cycles.binding.bind(attempt) else ""
