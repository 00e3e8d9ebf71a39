"""Steps that act on the cluster: users, administrators, a second scheduler ("rival") and faults.

A step that finds no object to act on does nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import ClaimPointer
from scheduler_core.model.taints import Toleration
from tests.simulation import cluster_objects
from tests.simulation.api_server import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    VOLUMES,
    ApiServer,
)
from tests.simulation.cluster_objects import APPS, HOST, TAINT, ZONE, ZONES, happens, has_claims, one_of
from tests.simulation.controllers import Controllers
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.gang_steps import GangSteps
from tests.simulation.network import Network
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.plain_fit import rejection_reason, requests_of
from tests.simulation.plugins import GATE_LABEL
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import PROFILES, limits_victims, resizes_late
from tests.simulation.steps import COMMON_FAULTS, Step

_CHECKS = 2000
_CHECK_INTERVAL_SECONDS = 0.01
_WATCHED = (PODS, PODS, PODS, NODES, NODES, CLAIMS, VOLUMES)
_BIND_FAULTS = (*COMMON_FAULTS, "no response", "conflict", "slow", "throttled")


@dataclass(frozen=True, slots=True)
class StepContext:
    """Parts of a simulation that steps act on."""

    seed: int
    server: ApiServer
    network: Network
    controllers: Controllers
    supervisor: OperatorSupervisor
    counts: FaultCounts


class ClusterSteps:
    """Performs the steps.

    Attributes:
        gangs: Performs the steps that act on gangs.
    """

    def __init__(self, context: StepContext, groups: PodGroups) -> None:
        self._context = context
        self._server = context.server
        self._network = context.network
        self._supervisor = context.supervisor
        self._counts = context.counts
        network, arm = context.network, context.network.arm
        self._actions: dict[str, Callable[[random.Random, int], None]] = {
            "create pods": self._create_pods,
            "create with a claim": self._create_with_claim,
            "delete a pod": self._delete_any,
            "delete a pod in flight": self._delete_in_flight,
            "recreate a pod": self._recreate,
            "finish pods": self._finish,
            "change a pod": self._change_pod,
            "lift a gate": self._lift_gate,
            "open a label gate": self._open_label_gate,
            "shrink a running pod": self._shrink_pod,
            "add a node": self._add_node,
            "delete a node": lambda rng, _: self._delete_node(rng, self._server.objects(NODES)),
            "delete a node in use": self._delete_node_in_use,
            "shrink a node": lambda rng, _: self._resize_node(rng, shrink=True),
            "grow a node": lambda rng, _: self._resize_node(rng, shrink=False),
            "cordon or taint": self._close_node,
            "lift cordons and taints": self._open_nodes,
            "relabel a node": self._relabel,
            "change a budget": self._change_budget,
            "rival binds": lambda rng, number: self._rival(rng, number, fits=True),
            "rival overcommits": lambda rng, number: self._rival(rng, number, fits=False),
            "rival binds first": lambda *_: arm("bind", "rival", 1),
            "kill the operator": lambda *_: self._supervisor.kill(),
            "stop the operator": lambda *_: self._supervisor.stop(),
            "edit a profile": lambda rng, _: self._supervisor.edit_profile(rng),
            "apply an invalid profile": lambda rng, _: self._supervisor.apply_invalid_profile(rng),
            "delete a profile": self._delete_profile,
            "delete a profile during a cycle": lambda rng, _: self._delete_profile_during_cycle(rng, _CHECKS),
            "stall a watch": self._stall_watch,
            "drop a watch": lambda rng, _: network.drop(one_of(rng, _WATCHED), graceful=False),
            "end a watch": lambda rng, _: network.drop(one_of(rng, _WATCHED), graceful=True),
            "expire a watch": lambda rng, _: network.expire(one_of(rng, _WATCHED)),
            "make the API server unavailable": lambda rng, _: network.make_unavailable(0.5 + 8.0 * rng.random() ** 2),
            "throttle requests": lambda rng, _: arm(one_of(rng, ("bind", "patch", "delete")), "throttled", 2),
            "fail binds": self._fail_binds,
            "acknowledge binds without binding": lambda rng, _: arm("bind", "acknowledged only", rng.randrange(1, 4)),
            "fail reads": lambda rng, _: arm("read", one_of(rng, ("error before", "request lost")), 2),
            "fail patches": lambda rng, _: arm("patch", one_of(rng, ("error before", "response lost")), 2),
            "fail deletions": lambda rng, _: arm("delete", one_of(rng, ("error before", "response lost")), 1),
            "fail volumes": self._fail_volumes,
            "fail extenders": lambda rng, _: arm("extender", one_of(rng, ("slow", "error")), 2),
        }
        self.gangs = GangSteps(context, groups)
        self._actions |= self.gangs.actions

    def begin(self) -> None:
        """Create the cluster's objects before the operator starts."""
        rng = self._rng("begin")
        self._server.put(NAMESPACES, cluster_objects.namespace())
        for each in cluster_objects.classes():
            self._server.put(CLASSES, each)
        for number in range(rng.randrange(3, 6)):
            name = f"n{number}"
            self._server.put(NODES, cluster_objects.node(rng, name, self._server.new_uid(name)))
        for number in range(4):
            name = f"v{number}"
            volume = cluster_objects.volume(name, self._server.new_uid(name), ZONES[number % len(ZONES)])
            self._server.put(VOLUMES, volume)
        protected = APPS if limits_victims(self._context.seed) else APPS[:1]
        for app in protected:
            self._server.put(BUDGETS, cluster_objects.budget(app, 1))
        self._network.rival = self._bind_before_operator

    def add_actions(self, actions: Mapping[str, Callable[[random.Random, int], None]]) -> None:
        """Add kinds of steps."""
        self._actions |= actions

    def perform(self, step: Step) -> None:
        """Perform a step."""
        self._network.log(f"step {step.number}: {step.kind}")
        self._actions[step.kind](self._rng(str(step.number)), step.number)

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self._context.seed}/{what}")

    # -- pods ---------------------------------------------------------------------------------------------------

    def _pending(self) -> list[Pod]:
        return [pod for pod in self._server.pods() if not pod.spec.node_name and not pod.is_terminal]

    def _running(self) -> list[Pod]:
        return [
            pod
            for pod in self._server.pods()
            if pod.spec.node_name and not pod.is_terminal and pod.metadata.deletion_timestamp is None
        ]

    def _create_pods(self, rng: random.Random, number: int) -> None:
        for index in range(rng.randrange(1, 4)):
            name = f"p{number}-{index}"
            pod = cluster_objects.pod(rng, name, self._server.new_uid(name))
            if pod.spec.volumes:
                self._create_claim(rng, name)
            self._server.put(PODS, pod)

    def _create_with_claim(self, rng: random.Random, number: int) -> None:
        """Create the pod first and its claim later."""
        name = f"p{number}"
        pod = cluster_objects.pod(rng, name, self._server.new_uid(name))
        self._server.put(PODS, pod)
        if pod.spec.volumes:
            self._network.loop.call_later(3.0 * rng.random(), self._create_claim, rng, name)

    def _create_claim(self, rng: random.Random, name: str) -> None:
        self._server.put(CLAIMS, cluster_objects.claim(rng, name, self._server.new_uid(name)))

    def _delete(self, rng: random.Random, which: Callable[[Pod], bool]) -> Pod | None:
        pods = [pod for pod in self._server.pods() if which(pod)]
        if not pods:
            return None
        pod = one_of(rng, pods)
        self._network.log(f"delete {pod.metadata.uid}")
        self._server.delete_pod(pod.metadata.name)
        return pod

    def _delete_any(self, rng: random.Random, number: int) -> None:
        self._delete(rng, lambda pod: pod.metadata.deletion_timestamp is None)

    def _delete_in_flight(self, rng: random.Random, number: int) -> None:
        reserved = self._supervisor.reserved_nodes()
        if self._delete(rng, lambda pod: pod.metadata.uid in reserved and not pod.spec.node_name) is not None:
            self._counts.add("pod deleted during its attempt")

    def _recreate(self, rng: random.Random, number: int) -> None:
        old = self._delete(rng, lambda pod: not pod.spec.node_name)
        if old is not None:
            name = old.metadata.name
            self._counts.add("pod recreated")
            self._server.put(PODS, cluster_objects.pod(rng, name, self._server.new_uid(name)))

    def _finish(self, rng: random.Random, number: int) -> None:
        for pod in self._running():
            if happens(rng, 0.3):
                self._server.put(PODS, replace(pod, status=replace(pod.status, phase="Succeeded")))

    def _change_pod(self, rng: random.Random, number: int) -> None:
        pods = self._pending()
        if not pods:
            return
        pod = one_of(rng, pods)
        # A small request is not divided, because a pod must not grow between a decision and its bind.
        change = rng.randrange(3 if requests_of(pod)[0] >= 300 else 2)
        if change == 0:
            labels = {**pod.metadata.labels, "touched": str(number)}
            pod = replace(pod, metadata=replace(pod.metadata, labels=labels))
        elif change == 1:
            tolerations = (*pod.spec.tolerations, Toleration(TAINT.key, "Exists"))
            pod = replace(pod, spec=replace(pod.spec, tolerations=tolerations))
        else:
            pod = cluster_objects.with_requests(pod, requests_of(pod)[0] // 3)
        self._counts.add("pod changed")
        self._server.put(PODS, pod)

    def _lift_gate(self, rng: random.Random, number: int) -> None:
        gated = [pod for pod in self._pending() if pod.spec.scheduling_gates]
        if gated:
            pod = one_of(rng, gated)
            self._counts.add("gate lifted")
            self._server.put(PODS, replace(pod, spec=replace(pod.spec, scheduling_gates=())))

    def _open_label_gate(self, rng: random.Random, number: int) -> None:
        closed = [pod for pod in self._pending() if pod.metadata.labels.get(GATE_LABEL) == "closed"]
        if closed:
            pod = one_of(rng, closed)
            labels = {**pod.metadata.labels, GATE_LABEL: "open"}
            self._server.put(PODS, replace(pod, metadata=replace(pod.metadata, labels=labels)))

    def _shrink_pod(self, rng: random.Random, number: int) -> None:
        pods = [pod for pod in self._running() if requests_of(pod)[0] >= 300]
        if pods:
            pod = one_of(rng, pods)
            smaller = cluster_objects.with_requests(pod, requests_of(pod)[0] // 2)
            if resizes_late(self._context.seed):
                self._counts.add("resize made late")
                smaller = cluster_objects.with_granted(smaller, pod)
                self._context.controllers.resize(smaller)
            self._server.put(PODS, smaller)

    # -- nodes --------------------------------------------------------------------------------------------------

    def _add_node(self, rng: random.Random, number: int) -> None:
        """Add a node with a new name, or with the name of a deleted one."""
        names = [f"n{index}" for index in range(6)] if happens(rng, 0.5) else [f"m{number}"]
        absent = [name for name in names if name not in self._server.collection(NODES).objects]
        if absent:
            name = one_of(rng, absent)
            self._counts.add("node added")
            self._server.put(NODES, cluster_objects.node(rng, name, self._server.new_uid(name)))

    def _delete_node(self, rng: random.Random, nodes: list[Node]) -> None:
        if len(self._server.objects(NODES)) < 2 or not nodes:
            return
        node = one_of(rng, nodes)
        self._counts.add("node deleted")
        self._network.log(f"delete node {node.metadata.name}")
        self._server.remove(NODES, node.metadata.name)
        self._context.controllers.collect(node.metadata.name, node.metadata.uid)

    def _delete_node_in_use(self, rng: random.Random, number: int) -> None:
        used = set(self._supervisor.reserved_nodes().values())
        nodes = [node for node in self._server.objects(NODES) if node.metadata.name in used]
        if nodes and len(self._server.objects(NODES)) > 1:
            self._counts.add("node deleted during a bind")
            self._delete_node(rng, nodes)

    def _resize_node(self, rng: random.Random, *, shrink: bool) -> None:
        node = one_of(rng, self._server.objects(NODES))
        cpu = int(str(node.status.allocatable["cpu"]).rstrip("m"))
        cpu = max(1000, cpu // 2) if shrink else min(6000, cpu * 2)
        amounts = {**node.status.allocatable, "cpu": f"{cpu}m"}
        if shrink:
            self._counts.add("node allocatable reduced")
        self._put_node(replace(node, status=replace(node.status, allocatable=amounts)))

    def _close_node(self, rng: random.Random, number: int) -> None:
        node = one_of(rng, self._server.objects(NODES))
        self._counts.add("node cordoned or tainted")
        if happens(rng, 0.5):
            self._put_node(replace(node, spec=replace(node.spec, unschedulable=True)))
        elif TAINT not in node.spec.taints:
            self._put_node(replace(node, spec=replace(node.spec, taints=(*node.spec.taints, TAINT))))

    def _open_nodes(self, rng: random.Random, number: int) -> None:
        for node in self._server.objects(NODES):
            if (node.spec.unschedulable or node.spec.taints) and happens(rng, 0.7):
                self._put_node(replace(node, spec=replace(node.spec, unschedulable=False, taints=())))

    def _relabel(self, rng: random.Random, number: int) -> None:
        node = one_of(rng, self._server.objects(NODES))
        labels = {HOST: node.metadata.name}
        if happens(rng, 0.9):
            labels[ZONE] = one_of(rng, ZONES)
        if labels != node.metadata.labels:
            self._counts.add("node labels changed")
            self._put_node(replace(node, metadata=replace(node.metadata, labels=labels)))

    def _put_node(self, node: Node) -> None:
        self._network.log(f"update node {node.metadata.name}")
        self._server.put(NODES, node)

    # -- rival and faults ----------------------------------------------------------------------------------------

    def _change_budget(self, rng: random.Random, number: int) -> None:
        self._server.put(BUDGETS, cluster_objects.budget(one_of(rng, APPS), rng.randrange(3)))

    def _rival(self, rng: random.Random, number: int, *, fits: bool) -> None:
        pods = [pod for pod in self._pending() if not pod.spec.scheduling_gates and not has_claims(pod)]
        if pods:
            self._bind_as_rival(rng, one_of(rng, pods), fits=fits)

    def _bind_before_operator(self, name: str) -> None:
        """Bind a pod as the rival, just before the operator's bind arrives."""
        pod = self._server.pod(name)
        if pod is not None and not pod.spec.node_name and not pod.spec.resource_claims:
            self._counts.add("bind conflict with a rival")
            self._bind_as_rival(self._rng(f"rival {pod.metadata.uid}"), pod, fits=True)

    def _bind_as_rival(self, rng: random.Random, pod: Pod, *, fits: bool) -> None:
        nodes = [node for node in self._server.objects(NODES) if (not self._rejection_reason(pod, node)) is fits]
        if nodes:
            node = one_of(rng, nodes)
            self._counts.add("rival bound" if fits else "rival overcommitted")
            self._network.log(f"rival binds {pod.metadata.uid} to {node.metadata.name}")
            self._server.bind(pod.metadata.name, pod.metadata.uid, node.metadata.name, "rival")

    def _rejection_reason(self, pod: Pod, node: Node) -> str:
        others = [
            each for each in self._server.pods() if each.spec.node_name == node.metadata.name and not each.is_terminal
        ]
        return rejection_reason(pod, node, others)

    def _delete_profile(self, rng: random.Random, number: int) -> None:
        name = one_of(rng, PROFILES)
        if self._supervisor.delete_profile(name):
            self._network.loop.call_later(0.5 + 5.0 * rng.random(), self._supervisor.create_profile, name)

    def _delete_profile_during_cycle(self, rng: random.Random, checks: int) -> None:
        """Wait until a gang's cycle waits for an extender, and delete the profile of a nominated pod."""
        name = self._supervisor.nominated_profile()
        if name and self._supervisor.delete_profile(name):
            self._network.loop.call_later(0.5 + 5.0 * rng.random(), self._supervisor.create_profile, name)
        elif checks:
            self._network.loop.call_later(_CHECK_INTERVAL_SECONDS, self._delete_profile_during_cycle, rng, checks - 1)

    def _stall_watch(self, rng: random.Random, number: int) -> None:
        """Stall a watch, mostly briefly, sometimes for longer than a bound pod may stay unconfirmed."""
        seconds = 25.0 + 25.0 * rng.random() if happens(rng, 0.15) else 15.0 * rng.random() ** 2
        self._network.stall(one_of(rng, _WATCHED), seconds)

    def _fail_binds(self, rng: random.Random, number: int) -> None:
        self._network.arm("bind", one_of(rng, _BIND_FAULTS), rng.randrange(1, 3))

    def _fail_volumes(self, rng: random.Random, number: int) -> None:
        """Fail a write of a volume, fail provisioning, or bind a volume to another claim."""
        how = rng.randrange(3)
        if how == 0:
            self._network.arm("volume", one_of(rng, ("error before", "response lost")), 1)
        elif how == 1:
            self._context.controllers.failing += 1
        else:
            free = [each for each in self._server.objects(VOLUMES) if each.spec.claim_ref is None]
            if free:
                chosen = one_of(rng, free)
                pointer = ClaimPointer("elsewhere", f"c{number}", f"c{number}")
                self._counts.add("volume bind failed")
                self._server.put(VOLUMES, replace(chosen, spec=replace(chosen.spec, claim_ref=pointer)))
