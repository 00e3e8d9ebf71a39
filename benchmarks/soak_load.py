"""The mixed load of a soak: what is created, deleted, cordoned, released and preempted, and when.

Each action is drawn from a seed. The number of pods is bounded: memory that grows with the cluster is no leak.

    created --(gated: released)--> bound --chosen when there are too many--> deleted
    too large for any node --its time is over--> deleted
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, deque
from collections.abc import Coroutine
from dataclasses import dataclass, field

from bayplan.kube.http.connection import MERGE_PATCH, ApiConnection, ApiRequest

from benchmarks import workload
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.pod import Pod

PLAIN, GATED, HUGE, FILLER, IMPORTANT = "plain", "gated", "huge", "filler", "important"
"""Kinds of pods: goes anywhere, held by a gate, fits nowhere, fills a node of the full pool, takes a filler's place."""

LOW, HIGH = "soak-low", "soak-high"
"""Names of priority classes."""

_TICK_SECONDS = 0.02
_MOST_REQUESTS = 64
_FULL_POOL_SHARE = 10
_BURST_SECONDS = 20.0
_CORDON_SECONDS = 2.0
_CORDONED = 5
_GRACEFUL_SHARE = 0.2  # of deletions that kwok finishes, which could not keep up with all of them
_GATED_SECONDS = (1.0, 5.0)
_HUGE_SECONDS = (5.0, 30.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much load, and for how long.

    Attributes:
        seconds: Length.
        rate: Pods created a second; as many are deleted.
        nodes: Nodes; a tenth of them are kept full for preemption.
        live: Pods that live at most, those of the full pool left aside.
        seed: Of every draw.
    """

    seconds: float
    rate: float = 50.0
    nodes: int = 300
    live: int = 3000
    seed: int = 1


@dataclass(slots=True)
class _Living:
    kind: str
    since: float
    bound: bool = False


@dataclass(slots=True)
class Counts:
    """What was done.

    Attributes:
        done: By action.
        refused: Requests that failed, by the text of the error's class.
        latencies: Seconds from creation, or from release, to the binding as a watch reports it, by kind of pod.
    """

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=dict)


class Load:
    """One soak's load; a sink of the pods' informer.

    Args:
        connection: To the API server.
        plan: How much.

    Attributes:
        counts: What was done.
        all_bound: Set, once the load is over, when no pod waits.
    """

    def __init__(self, connection: ApiConnection, plan: Plan) -> None:
        self.counts = Counts()
        self.all_bound = asyncio.Event()
        self._connection = connection
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._living: dict[str, _Living] = {}
        self._deletable: deque[str] = deque()
        self._timed: list[tuple[float, str, str]] = []
        self._cordoned: deque[str] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        self._number = 0
        self._over = False
        self._pool = max(1, plan.nodes // _FULL_POOL_SHARE)

    # -- events of the watch ------------------------------------------------------------------------------------------

    def on_add(self, obj: Pod) -> None:
        """A pod is known."""
        self._seen(obj)

    def on_update(self, old: Pod, new: Pod) -> None:
        """A pod has changed."""
        del old
        self._seen(new)

    def on_delete(self, last_known: Pod) -> None:
        """A pod is gone, by this load or by preemption."""
        living = self._living.pop(last_known.metadata.name, None)
        if living is not None and living.kind == FILLER:
            self.counts.done["preempted"] += 1
        self._look_whether_all_are_bound()

    def on_synced(self) -> None:
        """The first list is complete."""

    def on_trouble(self, reason: str) -> None:
        """Nothing to do: the informer retries."""

    def _seen(self, pod: Pod) -> None:
        living = self._living.get(pod.metadata.name)
        if living is not None and pod.spec.node_name and not living.bound:
            living.bound = True
            self.counts.done["bound"] += 1
            self.counts.latencies.setdefault(living.kind, []).append(time.monotonic() - living.since)
            self._look_whether_all_are_bound()

    def _look_whether_all_are_bound(self) -> None:
        if self._over and not self.waiting():
            self.all_bound.set()

    # -- the load -----------------------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """How many pods live."""
        return len(self._living)

    async def prepare(self) -> None:
        """Create the priority classes, the nodes and what fills a tenth of them."""
        for name, value in ((LOW, 10), (HIGH, 1000)):
            body = {"metadata": {"name": name}, "value": value}
            await self._send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for number in range(self._plan.nodes):
            node = workload.node(number)
            node["metadata"]["labels"]["pool"] = "full" if number < self._pool else "open"
            await self._send("POST", "/api/v1/nodes", node)
        for _ in range(self._pool):
            self._create(FILLER)
        await self._answered()

    async def run(self) -> None:
        """Put the load on for as long as the plan says."""
        began = last_cordon = last_burst = time.monotonic()
        created = 0
        while (now := time.monotonic()) - began < self._plan.seconds:
            due = int((now - began) * self._plan.rate)
            # Pods that the servers cannot take in time are not sent later: the report has the rate that was reached.
            while created < due and len(self._requests) < _MOST_REQUESTS:
                created += 1
                self._create(self._random.choices((PLAIN, GATED, HUGE), (93, 5, 2))[0])
                self._delete_one_of_too_many()
            self._do_what_is_due(now)
            if now - last_cordon >= _CORDON_SECONDS:
                last_cordon = now
                self._cordon()
            if now - last_burst >= _BURST_SECONDS:
                last_burst = now
                self._burst(now)
            await asyncio.sleep(_TICK_SECONDS)

    async def finish(self) -> None:
        """Free what is held: gates, cordons, pods that fit nowhere."""
        while self._cordoned:
            self._set_cordon(self._cordoned.popleft(), cordoned=False)
        for _, action, name in self._timed:
            self._do(action, name)
        self._timed.clear()
        await self._answered()
        self._over = True
        self._look_whether_all_are_bound()

    def waiting(self) -> list[str]:
        """Name the pods that should be bound by now."""
        return [name for name, living in self._living.items() if not living.bound]

    def _do_what_is_due(self, now: float) -> None:
        due = [entry for entry in self._timed if entry[0] <= now]
        if due:
            self._timed = [entry for entry in self._timed if entry[0] > now]
        for _, action, name in due:
            self._do(action, name)

    def _do(self, action: str, name: str) -> None:
        if action == "release" and name in self._living:
            self._living[name].since = time.monotonic()
            self._spawn("released", self._send("PATCH", _pod_path(name), {"spec": {"schedulingGates": None}}))
        elif action == "delete":
            self._delete(name)
        elif action == "refill":
            self._create(FILLER)

    def _burst(self, now: float) -> None:
        """Important pods take the places of fillers; in half a burst's time they go and fillers come again."""
        for _ in range(max(1, self._pool // 2)):
            name = self._create(IMPORTANT)
            self._timed.append((now + _BURST_SECONDS / 2, "delete", name))
            self._timed.append((now + _BURST_SECONDS / 2 + 1.0, "refill", ""))

    def _cordon(self) -> None:
        name = f"node-{self._random.randrange(self._pool, self._plan.nodes):05d}"
        if name not in self._cordoned:
            self._cordoned.append(name)
            self._set_cordon(name, cordoned=True)
        if len(self._cordoned) > _CORDONED:
            self._set_cordon(self._cordoned.popleft(), cordoned=False)

    def _set_cordon(self, name: str, *, cordoned: bool) -> None:
        done = "cordoned" if cordoned else "uncordoned"
        self._spawn(done, self._send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": cordoned or None}}))

    def _delete_one_of_too_many(self) -> None:
        if len(self._deletable) > self._plan.live:
            # Regardless of age: a swap with the last keeps the draw cheap.
            index = self._random.randrange(len(self._deletable))
            self._deletable[index], self._deletable[-1] = self._deletable[-1], self._deletable[index]
            self._delete(self._deletable.pop())

    def _create(self, kind: str) -> str:
        size = self._random.randrange(900)
        pod = workload.pod(self._number, cpu_milli=100 + size, memory_mib=200 + size)
        self._number += 1
        spec, name = pod["spec"], str(pod["metadata"]["name"])
        requests = spec["containers"][0]["resources"]["requests"]
        spec["nodeSelector"] = {"pool": "full" if kind in {FILLER, IMPORTANT} else "open"}
        spec["priorityClassName"] = HIGH if kind == IMPORTANT else LOW
        now = time.monotonic()
        if kind in {FILLER, IMPORTANT}:
            requests["cpu"] = "30"
        elif kind == HUGE:
            requests["cpu"] = "100"
            self._timed.append((now + self._random.uniform(*_HUGE_SECONDS), "delete", name))
        else:
            self._deletable.append(name)
        if kind == GATED:
            spec["schedulingGates"] = [{"name": "soak.example.com/hold"}]
            self._timed.append((now + self._random.uniform(*_GATED_SECONDS), "release", name))
        self._living[name] = _Living(kind, now)
        path = f"/api/v1/namespaces/{workload.NAMESPACE}/pods"
        self._spawn("created", self._send("POST", path, pod))
        return name

    def _delete(self, name: str) -> None:
        graceful = self._random.random() < _GRACEFUL_SHARE
        body = None if graceful else {"gracePeriodSeconds": 0}
        self._spawn("deleted", self._send("DELETE", _pod_path(name), body))

    # -- requests -----------------------------------------------------------------------------------------------------

    def _spawn(self, action: str, request: Coroutine[None, None, None]) -> None:
        async def send() -> None:
            try:
                await request
            except SchedulerCoreError as error:
                # A pod that was preempted, or a creation still on its way: counted, and no reason to stop.
                self.counts.refused[f"{action}: {type(error).__name__}"] += 1
            else:
                self.counts.done[action] += 1

        task = asyncio.create_task(send())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _send(self, method: str, path: str, body: workload.Document | None) -> None:
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        payload = None if body is None else json.dumps(body).encode()
        await self._connection.request(ApiRequest(method, path, payload, content_type, timeout=30.0))

    async def _answered(self) -> None:
        while self._requests:
            await asyncio.wait(self._requests)


def _pod_path(name: str) -> str:
    return f"/api/v1/namespaces/{workload.NAMESPACE}/pods/{name}"
