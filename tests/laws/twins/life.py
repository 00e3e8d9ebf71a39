"""A random life of a cluster, lived by a scheduler that reuses results and by one that computes everything.

A seed is one life. Both schedulers see the same changes in the same order, and each decision of one is compared with
that of the other; the next change follows from the decision.
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
from tests.laws.twins.cluster_draws import draw_group, draw_node, draw_profile
from tests.laws.twins.devices import EXTENDED_RESOURCE, SHARED_CLAIMS, draw_class, draw_device_claim, draw_slice
from tests.laws.twins.pod_draws import (
    NAMESPACES,
    PROFILES,
    draw_app,
    draw_pod_fields,
    draw_requests,
)
from tests.laws.twins.storage import draw_claim, draw_csi_node
from tests.laws.twins.twin import REAL, Bounds, Decision, Twin
from tests.support.builders import PodFields, pod
from tests.support.devices import using
from tests.support.gangs import LABEL
from tests.support.storage import mounts

_SHAPES = 6
_RECENT_SHAPES = 3.0
_WAITING = 20
_PODS_PER_NODE = 12


class LifeCounts(Struct):
    """What happened in a life.

    Attributes:
        decisions: Pods and gangs that were decided.
        placed: Pods that got a node.
        gangs: Gangs that got their nodes.
        victims: Pods that were evicted.
        reused: Pods whose node was chosen from reused results.
        reuse_errors: Errors in reused results, by plugin.
        allocated: Most claims that were allocated at a time.
        problem: How the twins differ; "" if they do not.
    """

    decisions: int = 0
    placed: int = 0
    gangs: int = 0
    victims: int = 0
    reused: int = 0
    reuse_errors: dict[str, int] = {}
    allocated: int = 0
    problem: str = ""


class Life:
    """One life.

    Args:
        seed: What is drawn.
        bounds: Bounds of the scheduler that reuses results.
        has_gangs: Whether PodGroups come.
        has_devices: Whether nodes have devices, and pods claims.
        twins: The schedulers to compare; one that reuses results and one that computes everything, if left out.
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
        self._is_calm = self._rng.random() < 0.5
        self._max_nodes = self._rng.choice((4, 12, 12, 30))
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._groups: dict[str, PodGroup] = {}
        self._shapes: list[PodFields] = []
        self._drawn = 0
        self.counts = LifeCounts()
        self._changes: dict[Callable[[], None], float] = {
            self._pod_comes: 40,
            self._pod_goes: 20,
            self._pod_changes: 4,
            self._bound_pod_comes: 1,
            self._many_pods_go: 1,
            self._node_comes: 4,
            self._node_goes: 1.5,
            self._node_changes: 4,
            self._profile_changes: 0.3,
            self._service_comes: 0.4,
            self._time_passes: 1,
            self._gang_comes: 3 if has_gangs else 0,
            self._gang_goes: 1 if has_gangs else 0,
            self._devices_change: 4 if has_devices else 0,
        }
        for name in PROFILES:
            self._serve(name)

    def run(self, decisions: int) -> LifeCounts:
        """Live until that many pods and gangs were decided, or the twins differ."""
        asyncio.run(self._run(decisions))
        reusing, _ = self._twins
        self.counts.reused = reusing.reused
        self.counts.reuse_errors = reusing.reuse_errors
        return self.counts

    async def _run(self, decisions: int) -> None:
        names, weights = list(self._changes), list(self._changes.values())
        while self.counts.decisions < decisions and not self.counts.problem:
            if len(self._nodes) < 2:
                self._node_comes()
            self._rng.choices(names, weights)[0]()
            self._keep_small()
            while await self._decide():
                pass
        for twin in self._twins:
            twin.rig.queue.close()

    # -- decisions ----------------------------------------------------------------------------------------------

    async def _decide(self) -> bool:
        reusing, computing = [await twin.decide() for twin in self._twins]
        if reusing != computing:
            self.counts.problem = f"decision {self.counts.decisions}: with reuse {reusing}, without {computing}"
            return False
        if reusing is None:
            return False
        allocated, computed = [twin.devices.allocations() for twin in self._twins]
        if allocated != computed:
            self.counts.problem = f"decision {self.counts.decisions}: devices {allocated}, without reuse {computed}"
            return False
        self.counts.allocated = max(self.counts.allocated, len(allocated))
        self._follow(reusing)
        return True

    def _follow(self, decision: Decision) -> None:
        """Let the cluster be as the schedulers decided."""
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

    def _feed(self, show: Callable[[Scheduler], None]) -> None:
        for twin in self._twins:
            show(twin.scheduler)

    # -- pods ---------------------------------------------------------------------------------------------------

    def _pod_comes(self) -> None:
        rng = self._rng
        if self._shapes and rng.random() < 0.85:
            fields = self._shapes[-1 - min(int(rng.expovariate(1 / _RECENT_SHAPES)), len(self._shapes) - 1)]
            if rng.random() < 0.25:
                fields = {**fields, "requests": draw_requests(rng)}
        else:
            fields = draw_pod_fields(rng)
            self._shapes = [*self._shapes, fields][-_SHAPES:]
        if self._is_calm:
            # Without preemption there are no nominations, which end most of the reuse.
            fields = {**fields, "priority": 0}
        for _ in range(rng.choice((1, 1, 2, 6))):
            own: PodFields = {**fields}
            name = self._new_name("p")
            if rng.random() < 0.08:
                own["volumes"] = mounts(*self._claims(name, fields.get("namespace", "default")))
            if self._has_devices and rng.random() < 0.1:
                # The other pods of the workload do not request it.
                own["requests"] = {**fields.get("requests", {}), EXTENDED_RESOURCE: "1"}
            if rng.random() < 0.02 and not self._is_calm:
                own["nominated_node"] = rng.choice(list(self._nodes))
            self._add(self._with_devices(pod(name, **own)))

    def _with_devices(self, made: Pod) -> Pod:
        """Let some pods use devices: by a claim of their own, or by one of others."""
        if not self._has_devices or self._rng.random() < 0.6:
            return made
        name = self._rng.choice((*SHARED_CLAIMS, made.metadata.name, made.metadata.name))
        shown = draw_device_claim(self._rng, name, made.metadata.namespace)
        for twin in self._twins:
            twin.devices.show(shown)
        return using(made, name)

    def _devices_change(self) -> None:
        """Replace the devices of a node, or the class."""
        self._generation += 1
        shown = (
            draw_class(self._rng)
            if self._rng.random() < 0.1 or self._generation == 1
            else draw_slice(self._rng, self._rng.choice(list(self._nodes)), self._generation)
        )
        for twin in self._twins:
            twin.devices.show(shown)

    def _claims(self, name: str, namespace: str) -> list[str]:
        names = [f"{name}-{number}" for number in range(self._rng.randint(1, 2))]
        for each in names:
            for shown in draw_claim(self._rng, each, namespace):
                for twin in self._twins:
                    twin.controllers.show(shown)
        return names

    def _bound_pod_comes(self) -> None:
        fields = draw_pod_fields(self._rng)
        fields["node_name"] = self._rng.choice(list(self._nodes))
        self._add(pod(self._new_name("b"), **fields))

    def _pod_goes(self) -> None:
        if self._pods:
            self._delete(self._rng.choice(list(self._pods)))

    def _many_pods_go(self) -> None:
        for uid in self._rng.sample(list(self._pods), len(self._pods) // 2):
            self._delete(uid)

    def _pod_changes(self) -> None:
        if not self._pods:
            return
        rng, old = self._rng, self._rng.choice(list(self._pods.values()))
        change = rng.choice(("labels", "resources", "deletion", "phase", "tolerations"))
        if change == "labels":
            labels = {**old.metadata.labels, "app": draw_app(rng)}
            self._update(old, replace(old, metadata=replace(old.metadata, labels=labels)))
        elif change == "resources" and old.spec.node_name:
            first, *others = old.spec.containers
            first = replace(first, resources=replace(first.resources, requests=dict(draw_requests(rng))))
            self._update(old, replace(old, spec=replace(old.spec, containers=(first, *others))))
        elif change == "deletion":
            wall = self._twins[0].rig.clock.wall()
            self._update(old, replace(old, metadata=replace(old.metadata, deletion_timestamp=wall)))
        elif change == "phase" and old.spec.node_name:
            self._update(old, replace(old, status=replace(old.status, phase="Succeeded")))
        elif change == "tolerations" and not old.spec.node_name:
            tolerations = (*old.spec.tolerations, Toleration("t1", "Exists"))
            self._update(old, replace(old, spec=replace(old.spec, tolerations=tolerations)))

    def _keep_small(self) -> None:
        waiting = [uid for uid, each in self._pods.items() if not each.spec.node_name]
        for uid in waiting[: max(0, len(waiting) - _WAITING)]:
            self._delete(uid)
        if len(self._pods) > len(self._nodes) * _PODS_PER_NODE:
            self._many_pods_go()

    def _add(self, new: Pod) -> None:
        self._pods[new.metadata.uid] = new
        self._feed(lambda scheduler: scheduler.feed.pod_added(new))

    def _update(self, old: Pod, new: Pod) -> None:
        if new.is_terminal:
            del self._pods[new.metadata.uid]
        else:
            self._pods[new.metadata.uid] = new
        self._feed(lambda scheduler: scheduler.feed.pod_updated(old, new))

    def _delete(self, uid: str) -> None:
        gone = self._pods.pop(uid, None)
        if gone is None:
            return
        self._feed(lambda scheduler: scheduler.feed.pod_deleted(gone))
        for reference in gone.spec.resource_claims:
            if reference.resource_claim_name not in SHARED_CLAIMS:
                for twin in self._twins:
                    twin.devices.delete_claim(f"{gone.metadata.namespace}/{reference.resource_claim_name}")
        for each in gone.spec.volumes:
            if each.claim is not None:
                for twin in self._twins:
                    twin.controllers.delete_claim(f"{gone.metadata.namespace}/{each.claim.claim_name}")

    def _new_name(self, prefix: str) -> str:
        self._drawn += 1
        return f"{prefix}{self._drawn}"

    # -- nodes, profiles and the rest ---------------------------------------------------------------------------

    def _node_comes(self) -> None:
        # Of few names, so that some come back.
        name = f"n{self._rng.randrange(2 * self._max_nodes)}"
        if name in self._nodes or len(self._nodes) >= self._max_nodes:
            return
        new = self._nodes[name] = draw_node(self._rng, name)
        self._feed(lambda scheduler: scheduler.feed.node_added(new))
        drivers = draw_csi_node(self._rng, name)
        for twin in self._twins:
            twin.controllers.show(drivers)
        if self._has_devices:
            self._devices_change()

    def _node_goes(self) -> None:
        gone = self._nodes.pop(self._rng.choice(list(self._nodes)))
        self._feed(lambda scheduler: scheduler.feed.node_deleted(gone))
        for twin in self._twins:
            twin.devices.withdraw(gone.metadata.name)

    def _node_changes(self) -> None:
        name = self._rng.choice(list(self._nodes))
        old, new = self._nodes[name], draw_node(self._rng, name)
        part = self._rng.choice(("labels", "spec", "status", "all"))
        if part == "labels":
            new = replace(old, metadata=replace(old.metadata, labels=new.metadata.labels))
        elif part == "spec":
            new = replace(old, spec=new.spec)
        elif part == "status":
            new = replace(old, status=new.status)
        self._nodes[name] = new
        self._feed(lambda scheduler: scheduler.feed.node_updated(old, new))

    def _serve(self, name: str) -> None:
        config = draw_profile(self._rng, name)
        for twin in self._twins:
            twin.serve(config)

    def _profile_changes(self) -> None:
        self._serve(self._rng.choice(PROFILES))

    def _service_comes(self) -> None:
        name = self._new_name("s")
        meta = ObjectMeta(name=name, namespace=self._rng.choice(NAMESPACES), uid=f"uid-of-{name}")
        new = Service(meta, LabelPairsSpec(selector={"app": draw_app(self._rng)}))
        self._feed(lambda scheduler: scheduler.workload_feed.added(new))

    def _time_passes(self) -> None:
        seconds = self._rng.choice((1, 5, 30, 400))
        for twin in self._twins:
            twin.rig.clock.advance(seconds)
            twin.rig.queue.flush()

    # -- gangs --------------------------------------------------------------------------------------------------

    def _gang_comes(self) -> None:
        rng, size = self._rng, self._rng.randint(2, 8)
        new = draw_group(rng, self._new_name("g"), size)
        self._groups[new.key.name] = new
        self._feed(lambda scheduler: scheduler.group_feed.group_changed(new))
        shapes = [draw_pod_fields(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
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

    def _gang_goes(self) -> None:
        if not self._groups:
            return
        gone = self._groups.pop(self._rng.choice(list(self._groups)))
        self._feed(lambda scheduler: scheduler.group_feed.group_deleted(gone.key))
        if self._rng.random() < 0.7:
            for uid in [uid for uid, each in self._pods.items() if each.metadata.labels.get(LABEL) == gone.key.name]:
                self._delete(uid)
        else:
            again = self._groups[gone.key.name] = dataclasses.replace(gone, uid=f"{gone.uid}x")
            self._feed(lambda scheduler: scheduler.group_feed.group_changed(again))
