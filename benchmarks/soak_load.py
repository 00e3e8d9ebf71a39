"""The mixed load of a soak test: pods are created, deleted, ungated and preempted, and nodes cordoned.

Actions are random, from a seed. The number of pods is bounded, so that memory does not grow with the cluster.

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

from benchmarks import workloads
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.pod import Pod

PLAIN, GATED, HUGE, FILLER, IMPORTANT = "plain", "gated", "huge", "filler", "important"
"""Kinds of pods: fits on all nodes, gated, infeasible, fills a node of the full pool, preempts a filler."""

LOW, HIGH = "soak-low", "soak-high"
"""Names of priority classes."""

_TICK_SECONDS = 0.02
_MOST_REQUESTS = 64
_FULL_POOL_SHARE = 10
_BURST_SECONDS = 20.0
_CORDON_SECONDS = 2.0
_CORDONED = 5
_GRACEFUL_SHARE = 0.2  # share of deletions that kwok finishes; it is too slow for all of them
_GATED_SECONDS = (1.0, 5.0)
_HUGE_SECONDS = (5.0, 30.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """Amount and duration of the load.

    Attributes:
        rate: Pods created per second; the same number is deleted.
        nodes: Number of nodes; a tenth of them stay full for preemption.
        live: Maximum number of existing pods, without those of the full pool.
    """

    seconds: float
    rate: float = 50.0
    nodes: int = 300
    live: int = 3000
    seed: int = 1


@dataclass(slots=True)
class _CreatedPod:
    kind: str
    since: float
    bound: bool = False


@dataclass(slots=True)
class Counts:
    """Counts of the load.

    Attributes:
        refused: Failed requests, by error class.
        latencies: Seconds from creation, or from the removal of the gate, to the watch event of the binding, by kind of
            pod.
    """

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=dict)


class Load:
    """The load of one soak test; a sink of the pods' informer.

    Attributes:
        all_bound: Set when the load has ended and no pod waits.
    """

    def __init__(self, connection: ApiConnection, plan: Plan) -> None:
        self.counts = Counts()
        self.all_bound = asyncio.Event()
        self._connection = connection
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._existing: dict[str, _CreatedPod] = {}
        self._deletable: deque[str] = deque()
        self._timed: list[tuple[float, str, str]] = []
        self._cordoned: deque[str] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        self._number = 0
        self._over = False
        self._pool = max(1, plan.nodes // _FULL_POOL_SHARE)

    # -- events of the watch ------------------------------------------------------------------------------------------

    def on_add(self, obj: Pod) -> None:
        self._seen(obj)

    def on_update(self, old: Pod, new: Pod) -> None:
        del old
        self._seen(new)

    def on_delete(self, last_known: Pod) -> None:
        """Handle a pod that was deleted by this load or by preemption."""
        created = self._existing.pop(last_known.metadata.name, None)
        if created is not None and created.kind == FILLER:
            self.counts.done["preempted"] += 1
        self._look_whether_all_are_bound()

    def on_synced(self) -> None:
        """Handle the end of the first list."""

    def on_trouble(self, reason: str) -> None:
        """Do nothing: the informer retries."""

    def _seen(self, pod: Pod) -> None:
        created = self._existing.get(pod.metadata.name)
        if created is not None and pod.spec.node_name and not created.bound:
            created.bound = True
            self.counts.done["bound"] += 1
            self.counts.latencies.setdefault(created.kind, []).append(time.monotonic() - created.since)
            self._look_whether_all_are_bound()

    def _look_whether_all_are_bound(self) -> None:
        if self._over and not self.waiting():
            self.all_bound.set()

    # -- the load -----------------------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        return len(self._existing)

    async def prepare(self) -> None:
        """Create the priority classes, the nodes, and the pods that fill a tenth of them."""
        for name, value in ((LOW, 10), (HIGH, 1000)):
            body = {"metadata": {"name": name}, "value": value}
            await self._send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for number in range(self._plan.nodes):
            node = workloads.node(number)
            node["metadata"]["labels"]["pool"] = "full" if number < self._pool else "open"
            await self._send("POST", "/api/v1/nodes", node)
        for _ in range(self._pool):
            self._create(FILLER)
        await self._answered()

    async def run(self) -> None:
        began = last_cordon = last_burst = time.monotonic()
        created = 0
        while (now := time.monotonic()) - began < self._plan.seconds:
            due = int((now - began) * self._plan.rate)
            # Pods that the servers cannot accept in time are not sent later: the report has the actual rate.
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
        """Remove gates, cordons and infeasible pods."""
        while self._cordoned:
            self._set_cordon(self._cordoned.popleft(), cordoned=False)
        for _, action, name in self._timed:
            self._do(action, name)
        self._timed.clear()
        await self._answered()
        self._over = True
        self._look_whether_all_are_bound()

    def waiting(self) -> list[str]:
        return [name for name, created in self._existing.items() if not created.bound]

    def _do_what_is_due(self, now: float) -> None:
        due = [entry for entry in self._timed if entry[0] <= now]
        if due:
            self._timed = [entry for entry in self._timed if entry[0] > now]
        for _, action, name in due:
            self._do(action, name)

    def _do(self, action: str, name: str) -> None:
        if action == "release" and name in self._existing:
            self._existing[name].since = time.monotonic()
            self._spawn("released", self._send("PATCH", _pod_path(name), {"spec": {"schedulingGates": None}}))
        elif action == "delete":
            self._delete(name)
        elif action == "refill":
            self._create(FILLER)

    def _burst(self, now: float) -> None:
        """Create pods that preempt fillers; after half of the burst time delete them and create fillers again."""
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
            # The choice ignores the age: a swap with the last element makes it cheap.
            index = self._random.randrange(len(self._deletable))
            self._deletable[index], self._deletable[-1] = self._deletable[-1], self._deletable[index]
            self._delete(self._deletable.pop())

    def _create(self, kind: str) -> str:
        size = self._random.randrange(900)
        pod = workloads.pod(self._number, cpu_milli=100 + size, memory_mib=200 + size)
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
        self._existing[name] = _CreatedPod(kind, now)
        path = f"/api/v1/namespaces/{workloads.NAMESPACE}/pods"
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
                # The pod was preempted or is not created yet: the failure is counted, and the load continues.
                self.counts.refused[f"{action}: {type(error).__name__}"] += 1
            else:
                self.counts.done[action] += 1

        task = asyncio.create_task(send())
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _send(self, method: str, path: str, body: workloads.Document | None) -> None:
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        payload = None if body is None else json.dumps(body).encode()
        await self._connection.request(ApiRequest(method, path, payload, content_type, timeout=30.0))

    async def _answered(self) -> None:
        while self._requests:
            await asyncio.wait(self._requests)


def _pod_path(name: str) -> str:
    return f"/api/v1/namespaces/{workloads.NAMESPACE}/pods/{name}"
