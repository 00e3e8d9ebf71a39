"""A random cluster lifetime, processed by a scheduler with cached results and by one that computes everything.

Both schedulers receive the same changes in the same order, and each decision of one is compared with that of the other.
The next change depends on the decision.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.model.taints import Toleration
from scheduler_core.model.workloads import LabelPairsSpec, Service
from scheduler_core.scheduler import Scheduler
from tests.laws.twins.devices import EXTENDED_RESOURCE, SHARED_CLAIMS, random_class, random_device_claim, random_slice
from tests.laws.twins.random_clusters import random_group, random_node, random_profile
from tests.laws.twins.random_pods import (
    NAMESPACES,
    PROFILES,
    random_app,
    random_pod_fields,
    random_requests,
)
from tests.laws.twins.storage import random_claim, random_csi_node
from tests.laws.twins.twin import REAL, Bounds, Decision, Twin
from tests.support.builders import PodFields, pod
from tests.support.devices import using
from tests.support.gangs import LABEL
from tests.support.storage import mounts

_MAXIMUM_SHAPES = 6
_RECENT_SHAPES = 3.0
_MAXIMUM_PENDING = 20
_PODS_PER_NODE = 12


class RunCounts(Struct):
    """Counts of a run.

    Attributes:
        decisions: Number of decided pods and gangs.
        victims: Number of evicted pods.
        reused: Number of pods whose node was chosen from cached results.
        reuse_errors: Errors in cached results, by plugin.
        allocated: Maximum number of claims that were allocated at a time.
        problem: How the decisions differ; "" if they do not differ.
    """

    decisions: int = 0
    placed: int = 0
    gangs: int = 0
    victims: int = 0
    reused: int = 0
    reuse_errors: dict[str, int] = {}
    allocated: int = 0
    problem: str = ""


class ClusterRun:
    """One run.

    Args:
        seed: Seed of all random values.
        bounds: Bounds of the scheduler with cached results.
        has_gangs: Whether PodGroups are created.
        has_devices: Whether nodes have devices and pods have claims.
        twins: The schedulers to compare; by default one with and one without cached results.
    """

    def __init__(
        self,
        seed: int,
        bounds: Bounds = REAL,
        *,
        has_gangs: bool = False,
        has_devices: bool = False,
        twins: tuple[Twin, Twin] | None = None,
    ) -> None:
        self._has_devices = has_devices
        self._generation = 0
        self._rng = Random(seed)
        self._twins = twins or (Twin(bounds), Twin(None))
        self._is_without_preemption = self._rng.random() < 0.5
        self._max_nodes = self._rng.choice((4, 12, 12, 30))
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._groups: dict[str, PodGroup] = {}
        self._shapes: list[PodFields] = []
        self._created = 0
        self.counts = RunCounts()
        self._changes: dict[Callable[[], None], float] = {
            self._create_pod: 40,
            self._delete_any_pod: 20,
            self._change_pod: 4,
            self._create_bound_pod: 1,
            self._delete_many_pods: 1,
            self._create_node: 4,
            self._delete_node: 1.5,
            self._change_node: 4,
            self._change_profile: 0.3,
            self._create_service: 0.4,
            self._advance_time: 1,
            self._create_gang: 3 if has_gangs else 0,
            self._delete_gang: 1 if has_gangs else 0,
            self._change_devices: 4 if has_devices else 0,
        }
        for name in PROFILES:
            self._serve(name)

    def run(self, decisions: int) -> RunCounts:
        """Run until the given number of decisions, or until the decisions differ."""
        asyncio.run(self._run(decisions))
        reusing, _ = self._twins
        self.counts.reused = reusing.reused
        self.counts.reuse_errors = reusing.reuse_errors
        return self.counts

    async def _run(self, decisions: int) -> None:
        names, weights = list(self._changes), list(self._changes.values())
        while self.counts.decisions < decisions and not self.counts.problem:
            if len(self._nodes) < 2:
                self._create_node()
            self._rng.choices(names, weights)[0]()
            self._limit_pods()
            while await self._decide():
                pass
        for twin in self._twins:
            twin.rig.queue.close()

    # -- decisions ----------------------------------------------------------------------------------------------

    async def _decide(self) -> bool:
        reusing, without = [await twin.decide() for twin in self._twins]
        if reusing != without:
            self.counts.problem = f"decision {self.counts.decisions}: with reuse {reusing}, without {without}"
            return False
        if reusing is None:
            return False
        allocated, computed = [twin.devices.allocations() for twin in self._twins]
        if allocated != computed:
            self.counts.problem = f"decision {self.counts.decisions}: devices {allocated}, without reuse {computed}"
            return False
        self.counts.allocated = max(self.counts.allocated, len(allocated))
        self._apply(reusing)
        return True

    def _apply(self, decision: Decision) -> None:
        """Apply a decision to the cluster."""
        self.counts.decisions += 1
        self.counts.placed += len(decision.chosen)
        self.counts.gangs += int(decision.gang is not None and len(decision.chosen) > 0)
        self.counts.victims += len(decision.victims)
        for (uid, node_name, _), is_bound in zip(decision.chosen, decision.bound, strict=True):
            old = self._pods.get(uid)
            if is_bound and old is not None:
                spec = replace(old.spec, node_name=node_name)
                self._update(old, replace(old, spec=spec, status=replace(old.status, nominated_node_name="")))
        for name, nominated, _ in decision.patches:
            for old in [each for each in self._pods.values() if each.metadata.name == name]:
                if nominated and not old.spec.node_name:
                    self._update(old, replace(old, status=replace(old.status, nominated_node_name=nominated)))
        for uid in decision.victims:
            self._delete(uid)

    def _deliver(self, change: Callable[[Scheduler], None]) -> None:
        for twin in self._twins:
            change(twin.scheduler)

    # -- pods ---------------------------------------------------------------------------------------------------

    def _create_pod(self) -> None:
        rng = self._rng
        if self._shapes and rng.random() < 0.85:
            fields = self._shapes[-1 - min(int(rng.expovariate(1 / _RECENT_SHAPES)), len(self._shapes) - 1)]
            if rng.random() < 0.25:
                fields = {**fields, "requests": random_requests(rng)}
        else:
            fields = random_pod_fields(rng)
            self._shapes = [*self._shapes, fields][-_MAXIMUM_SHAPES:]
        if self._is_without_preemption:
            # Without preemption there are no nominations, which prevent most of the reuse.
            fields = {**fields, "priority": 0}
        for _ in range(rng.choice((1, 1, 2, 6))):
            own: PodFields = {**fields}
            name = self._new_name("p")
            if rng.random() < 0.08:
                own["volumes"] = mounts(*self._claims(name, fields.get("namespace", "default")))
            if self._has_devices and rng.random() < 0.1:
                # Other pods of the same shape do not request the resource.
                own["requests"] = {**fields.get("requests", {}), EXTENDED_RESOURCE: "1"}
            if rng.random() < 0.02 and not self._is_without_preemption:
                own["nominated_node"] = rng.choice(list(self._nodes))
            self._add(self._with_devices(pod(name, **own)))

    def _with_devices(self, made: Pod) -> Pod:
        """Return the pod, or the pod with a claim of its own or a shared claim."""
        if not self._has_devices or self._rng.random() < 0.6:
            return made
        name = self._rng.choice((*SHARED_CLAIMS, made.metadata.name, made.metadata.name))
        new = random_device_claim(self._rng, name, made.metadata.namespace)
        for twin in self._twins:
            twin.devices.put(new)
        return using(made, name)

    def _change_devices(self) -> None:
        """Replace the devices of a node, or the device class."""
        self._generation += 1
        new = (
            random_class(self._rng)
            if self._rng.random() < 0.1 or self._generation == 1
            else random_slice(self._rng, self._rng.choice(list(self._nodes)), self._generation)
        )
        for twin in self._twins:
            twin.devices.put(new)

    def _claims(self, name: str, namespace: str) -> list[str]:
        names = [f"{name}-{number}" for number in range(self._rng.randint(1, 2))]
        for each in names:
            for new in random_claim(self._rng, each, namespace):
                for twin in self._twins:
                    twin.controllers.add(new)
        return names

    def _create_bound_pod(self) -> None:
        fields = random_pod_fields(self._rng)
        fields["node_name"] = self._rng.choice(list(self._nodes))
        self._add(pod(self._new_name("b"), **fields))

    def _delete_any_pod(self) -> None:
        if self._pods:
            self._delete(self._rng.choice(list(self._pods)))

    def _delete_many_pods(self) -> None:
        for uid in self._rng.sample(list(self._pods), len(self._pods) // 2):
            self._delete(uid)

    def _change_pod(self) -> None:
        if not self._pods:
            return
        rng, old = self._rng, self._rng.choice(list(self._pods.values()))
        change = rng.choice(("labels", "resources", "deletion", "phase", "tolerations"))
        if change == "labels":
            labels = {**old.metadata.labels, "app": random_app(rng)}
            self._update(old, replace(old, metadata=replace(old.metadata, labels=labels)))
        elif change == "resources" and old.spec.node_name:
            first, *others = old.spec.containers
            first = replace(first, resources=replace(first.resources, requests=dict(random_requests(rng))))
            self._update(old, replace(old, spec=replace(old.spec, containers=(first, *others))))
        elif change == "deletion":
            wall = self._twins[0].rig.clock.wall()
            self._update(old, replace(old, metadata=replace(old.metadata, deletion_timestamp=wall)))
        elif change == "phase" and old.spec.node_name:
            self._update(old, replace(old, status=replace(old.status, phase="Succeeded")))
        elif change == "tolerations" and not old.spec.node_name:
            tolerations = (*old.spec.tolerations, Toleration("t1", "Exists"))
            self._update(old, replace(old, spec=replace(old.spec, tolerations=tolerations)))

    def _limit_pods(self) -> None:
        waiting = [uid for uid, each in self._pods.items() if not each.spec.node_name]
        for uid in waiting[: max(0, len(waiting) - _MAXIMUM_PENDING)]:
            self._delete(uid)
        if len(self._pods) > len(self._nodes) * _PODS_PER_NODE:
            self._delete_many_pods()

    def _add(self, new: Pod) -> None:
        self._pods[new.metadata.uid] = new
        self._deliver(lambda scheduler: scheduler.feed.pod_added(new))

    def _update(self, old: Pod, new: Pod) -> None:
        if new.is_terminal:
            del self._pods[new.metadata.uid]
        else:
            self._pods[new.metadata.uid] = new
        self._deliver(lambda scheduler: scheduler.feed.pod_updated(old, new))

    def _delete(self, uid: str) -> None:
        deleted = self._pods.pop(uid, None)
        if deleted is None:
            return
        self._deliver(lambda scheduler: scheduler.feed.pod_deleted(deleted))
        for reference in deleted.spec.resource_claims:
            if reference.resource_claim_name not in SHARED_CLAIMS:
                for twin in self._twins:
                    twin.devices.delete_claim(f"{deleted.metadata.namespace}/{reference.resource_claim_name}")
        for each in deleted.spec.volumes:
            if each.claim is not None:
                for twin in self._twins:
                    twin.controllers.delete_claim(f"{deleted.metadata.namespace}/{each.claim.claim_name}")

    def _new_name(self, prefix: str) -> str:
        self._created += 1
        return f"{prefix}{self._created}"

    # -- nodes, profiles and the rest ---------------------------------------------------------------------------

    def _create_node(self) -> None:
        # Few names, so that some are used again.
        name = f"n{self._rng.randrange(2 * self._max_nodes)}"
        if name in self._nodes or len(self._nodes) >= self._max_nodes:
            return
        new = self._nodes[name] = random_node(self._rng, name)
        self._deliver(lambda scheduler: scheduler.feed.node_added(new))
        drivers = random_csi_node(self._rng, name)
        for twin in self._twins:
            twin.controllers.add(drivers)
        if self._has_devices:
            self._change_devices()

    def _delete_node(self) -> None:
        deleted = self._nodes.pop(self._rng.choice(list(self._nodes)))
        self._deliver(lambda scheduler: scheduler.feed.node_deleted(deleted))
        for twin in self._twins:
            twin.devices.delete_slice(deleted.metadata.name)

    def _change_node(self) -> None:
        name = self._rng.choice(list(self._nodes))
        old, new = self._nodes[name], random_node(self._rng, name)
        part = self._rng.choice(("labels", "spec", "status", "all"))
        if part == "labels":
            new = replace(old, metadata=replace(old.metadata, labels=new.metadata.labels))
        elif part == "spec":
            new = replace(old, spec=new.spec)
        elif part == "status":
            new = replace(old, status=new.status)
        self._nodes[name] = new
        self._deliver(lambda scheduler: scheduler.feed.node_updated(old, new))

    def _serve(self, name: str) -> None:
        config = random_profile(self._rng, name)
        for twin in self._twins:
            twin.serve(config)

    def _change_profile(self) -> None:
        self._serve(self._rng.choice(PROFILES))

    def _create_service(self) -> None:
        name = self._new_name("s")
        meta = ObjectMeta(name=name, namespace=self._rng.choice(NAMESPACES), uid=f"uid-of-{name}")
        new = Service(meta, LabelPairsSpec(selector={"app": random_app(self._rng)}))
        self._deliver(lambda scheduler: scheduler.workload_feed.added(new))

    def _advance_time(self) -> None:
        seconds = self._rng.choice((1, 5, 30, 400))
        for twin in self._twins:
            twin.rig.clock.advance(seconds)
            twin.rig.queue.flush()

    # -- gangs --------------------------------------------------------------------------------------------------

    def _create_gang(self) -> None:
        rng, size = self._rng, self._rng.randint(2, 8)
        new = random_group(rng, self._new_name("g"), size)
        self._groups[new.key.name] = new
        self._deliver(lambda scheduler: scheduler.group_feed.group_changed(new))
        shapes = [random_pod_fields(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
        for number in range(size):
            fields = rng.choice(shapes)
            labels = {**fields.get("labels", {}), LABEL: new.key.name}
            profile = rng.choice(PROFILES) if rng.random() < 0.05 else shapes[0].get("scheduler_name", PROFILES[0])
            own: PodFields = {
                **fields,
                "labels": labels,
                "namespace": new.key.namespace,
                "scheduler_name": profile,
            }
            self._add(pod(f"{new.key.name}-{number}", **own))

    def _delete_gang(self) -> None:
        if not self._groups:
            return
        deleted = self._groups.pop(self._rng.choice(list(self._groups)))
        self._deliver(lambda scheduler: scheduler.group_feed.group_deleted(deleted.key))
        if self._rng.random() < 0.7:
            for uid in [uid for uid, each in self._pods.items() if each.metadata.labels.get(LABEL) == deleted.key.name]:
                self._delete(uid)
        else:
            again = self._groups[deleted.key.name] = dataclasses.replace(deleted, uid=f"{deleted.uid}x")
            self._deliver(lambda scheduler: scheduler.group_feed.group_changed(again))
