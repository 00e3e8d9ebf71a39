"""RebalancePlans of the simulated cluster: their API, the Eviction API, ReplicaSets that replace pods, and checks.

The operator's own controller plans and makes the moves.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from bayplan.rebalancing.plan_controller import RebalancePlans, StoredPlan
from bayplan.resources.resource_model import API_VERSION
from msgspec.structs import replace

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from tests.simulation import cluster_objects
from tests.simulation.api_server import BUDGETS, NODES, PODS, Change, Response, status_response
from tests.simulation.cluster_objects import happens, one_of
from tests.simulation.custom_resources import CustomResources, LateEvents
from tests.simulation.network import Network
from tests.simulation.plain_fit import APP
from tests.simulation.steps import COMMON_FAULTS
from tests.simulation.virtual_loop import LoopClock

if TYPE_CHECKING:
    from tests.simulation.operator_process import OperatorProcess

KIND = "RebalancePlan"
REPLICAS, PLAN, EDIT, DELETE = "create replicas", "plan moves", "edit a plan", "delete a plan"
SUSPEND = "suspend or resume a plan"
FAIL, FAIL_STATUSES = "fail evictions", "fail statuses of plans"
_MAXIMUM_TRANSIT_SECONDS = 12.0
_BUDGET_REFUSES = "Cannot evict pod as it would violate the pod's disruption budget."


@dataclass(slots=True)
class _Eviction:
    """A pod that was evicted for a move; its replacement is any pod of its owner that is bound to the target later."""

    uid: str
    owner: str
    app: str
    target: str
    is_replaced: bool = False


class PlannedMoves(CustomResources):
    """The plans, and the steps that change them.

    Attributes:
        report_problem: Called with each violation at an eviction.
        counts: Number of events of each kind.
    """

    def __init__(self, network: Network, report_problem: Callable[[str], None]) -> None:
        super().__init__(network)
        self.counts: Counter[str] = Counter()
        self.report_problem = report_problem
        self._deleted_at = float("-inf")
        self._suspended_at: dict[str, float] = {}
        """Time at which each plan was suspended last, by UID."""
        self._evictions: defaultdict[tuple[str, int], list[_Eviction]] = defaultdict(list)
        """By UID and generation of the plan."""
        self.actions = {
            REPLICAS: self._create_replicas,
            PLAN: self._plan,
            EDIT: self._edit,
            DELETE: self._delete,
            SUSPEND: self._suspend,
            FAIL: lambda rng, _: network.arm("evict", one_of(rng, COMMON_FAULTS), 1),
            FAIL_STATUSES: lambda rng, _: network.arm("plan", one_of(rng, COMMON_FAULTS), 2),
        }
        self._server.on_plan_request = self.respond
        self._server.on_eviction = self._evict
        self._server.collection(PODS).listeners.append(self._pods_changed)

    # -- API ----------------------------------------------------------------------------------------------------

    def _evict(self, name: str, uid: str) -> Response:
        """Evict a pod within what the budgets allow, and check the move."""
        pod = self._server.pod(name)
        if pod is None or pod.metadata.uid != uid:
            return status_response(404 if pod is None else 409, name)
        app = pod.metadata.labels.get(APP, "")
        open_moves = [each for moves in self._evictions.values() for each in moves]
        for budget in self._server.objects(BUDGETS):
            if budget.metadata.name == f"keep-{app}":
                waiting = sum(each.app == app and not each.is_replaced for each in open_moves)
                if waiting >= budget.status.disruptions_allowed:
                    self.counts["eviction refused"] += 1
                    return status_response(429, _BUDGET_REFUSES)
        self._check_eviction(pod)
        self.counts["pod moved"] += 1
        return self._server.delete_pod(name, uid)

    # -- ReplicaSets --------------------------------------------------------------------------------------------

    def _pods_changed(self, change: Change) -> None:
        document = msgspec.json.decode(change.line)
        meta, node_name = document["object"]["metadata"], document["object"]["spec"].get("nodeName", "")
        owner = next((each["uid"] for each in meta.get("ownerReferences", ()) if each["kind"] == "ReplicaSet"), "")
        if not owner:
            return
        if document["type"] == "DELETED":
            pod = msgspec.convert(document["object"], Pod)
            seconds = 0.2 + 2.0 * random.Random(f"replace {meta['uid']}").random()
            self._network.loop.call_later(seconds, self._replace, pod)
        elif node_name:
            for moves in self._evictions.values():
                for each in moves:
                    each.is_replaced |= (each.owner, each.target) == (owner, node_name)

    def _replace(self, old: Pod) -> None:
        name = f"{old.metadata.name.partition('-x')[0]}-x{self._server.version}"
        meta = replace(old.metadata, name=name, uid=self._server.new_uid(name), deletion_timestamp=None)
        fresh = Pod(meta, replace(old.spec, node_name=""))
        self._server.put(PODS, fresh)

    # -- steps --------------------------------------------------------------------------------------------------

    def _create_replicas(self, rng: random.Random, number: int) -> None:
        owner = OwnerReference("ReplicaSet", f"rs{number}", f"rs{number}", "apps/v1", controller=True)
        made = cluster_objects.pod(rng, f"rs{number}", "")
        spec = replace(made.spec, volumes=(), scheduling_gates=(), priority=one_of(rng, (5, 10, 100)))
        if happens(rng, 0.7):
            spec = replace(spec, affinity=None, topology_spread_constraints=(), node_selector={})
        small = cluster_objects.with_requests(Pod(made.metadata, spec), one_of(rng, (100, 200, 400)))
        for index in range(rng.randint(2, 4)):
            name = f"rs{number}-{index}"
            labels = {APP: made.metadata.labels[APP]}
            uid = self._server.new_uid(name)
            meta = replace(made.metadata, name=name, uid=uid, labels=labels, owner_references=(owner,))
            self._server.put(PODS, Pod(meta, small.spec))

    def _plan(self, rng: random.Random, number: int) -> None:
        self._server.put(NODES, cluster_objects.node(rng, f"m{number}", self._server.new_uid(f"m{number}")))
        name = f"plan{number}"
        budget: dict[str, Any] = {"moves": rng.randint(1, 6), "concurrentMoves": one_of(rng, (1, 1, 2, 3))}
        spec: dict[str, Any] = {"objective": "Consolidate", "dryRun": happens(rng, 0.1), "budget": budget}
        nodes = [pod.spec.node_name for pod in self._server.pods() if pod.metadata.owner_references]
        nodes = sorted({name for name in nodes if name})
        if nodes and happens(rng, 0.8):
            spec |= {"objective": "Drain", "drain": {"nodes": [one_of(rng, nodes)]}}
        spec["moveTimeoutSeconds"] = one_of(rng, (10, 20, 40))
        metadata = {"name": name, "uid": self._server.new_uid(name), "generation": 1}
        self._network.log(f"{KIND} {name}: {spec}")
        self.put({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})

    def _edit(self, rng: random.Random, number: int) -> None:
        if self.bodies:
            body = self.bodies[one_of(rng, sorted(self.bodies))]
            self._change(body, budget={**body["spec"]["budget"], "moves": rng.randint(1, 6)})

    def _suspend(self, rng: random.Random, number: int) -> None:
        """Suspend a plan that makes moves, if there is one, else any plan; or resume a suspended one."""
        names = sorted(self.bodies)
        moving = [name for name in names if self.bodies[name].get("status", {}).get("phase") == "Moving"]
        suspended = [name for name in names if self.bodies[name]["spec"].get("suspend")]
        if suspended and (happens(rng, 0.5) or not moving):
            self.counts["plan resumed"] += 1
            self._change(self.bodies[one_of(rng, suspended)], suspend=False)
        elif names:
            body = self.bodies[one_of(rng, moving or names)]
            self.counts["moving plan suspended"] += bool(moving)
            self._suspended_at[body["metadata"]["uid"]] = self._network.loop.virtual_now
            self._change(body, suspend=True)

    def _change(self, body: dict[str, Any], **spec: Any) -> None:
        metadata = {**body["metadata"], "generation": body["metadata"]["generation"] + 1}
        self.put({**body, "metadata": metadata, "spec": {**body["spec"], **spec}})

    def _delete(self, rng: random.Random, number: int) -> None:
        if self.bodies:
            self._deleted_at = self._network.loop.virtual_now
            self.remove(one_of(rng, sorted(self.bodies)))

    # -- checks -------------------------------------------------------------------------------------------------

    def _check_eviction(self, pod: Pod) -> None:
        """Check that the status names the move, and that the earlier replacements are bound, but those of its width."""
        uid, name = pod.metadata.uid, pod.metadata.name
        for body in self.bodies.values():
            for move in body.get("status", {}).get("moves", ()):
                if move["uid"] == uid and move["state"] == "Evicting":
                    self._begin(body, pod, move["target"])
                    return
        # The plan may have been deleted while the request was in transit.
        if self._deleted_at + _MAXIMUM_TRANSIT_SECONDS < self._network.loop.virtual_now:
            self.report_problem(f"pod {name} is evicted, and no status has its move")

    def _begin(self, body: dict[str, Any], pod: Pod, target: str) -> None:
        generation = body["status"].get("observedGeneration", 0)
        if body["spec"].get("suspend"):
            since = self._suspended_at[body["metadata"]["uid"]]
            # The request may be in transit, or the watch event.
            if since + _MAXIMUM_TRANSIT_SECONDS < self._network.loop.virtual_now:
                self.report_problem(f"pod {pod.metadata.name} is evicted although its plan is suspended")
        moves, budget = self._evictions[body["metadata"]["uid"], generation], body["spec"]["budget"]
        if any(each.uid == pod.metadata.uid for each in moves):
            # The request is repeated, because it ended with an error after the eviction.
            return
        waiting = sum(not each.is_replaced for each in moves)
        if waiting >= budget["concurrentMoves"]:
            self.report_problem(f"pod {pod.metadata.name} is evicted while {waiting} pods of its plan are not replaced")
        owner = pod.metadata.owner_references[0].uid
        moves.append(_Eviction(pod.metadata.uid, owner, pod.metadata.labels.get(APP, ""), target))
        if body["metadata"]["generation"] == generation and len(moves) > budget["moves"]:
            self.report_problem(f"{len(moves)} pods are evicted by {body['metadata']['name']}: more than its budget")

    def status_written(self, body: dict[str, Any]) -> None:
        status = body["status"]
        if status.get("phase") == "Completed":
            self.counts["plan completed"] += 1
        if status.get("phase") == "Stopped":
            self.counts["plan stopped"] += 1

    def check_idle(self, process: OperatorProcess) -> Iterator[str]:
        """Yield room that plans hold, and plans that have not ended, after a long quiet time."""
        for room in process.scheduler.reservations.held:
            if room.holder.kind == KIND:
                yield f"room is held for {room.holder.key.holder} although nothing changes"
        for name, body in self.bodies.items():
            status = body.get("status", {})
            is_seen = status.get("observedGeneration") == body["metadata"]["generation"]
            ended = ("Suspended",) if body["spec"].get("suspend") else ("Planned", "Completed", "Stopped")
            if not is_seen or status.get("phase") not in ended:
                yield f"{KIND} {name} is {status.get('phase')} after a long quiet time"


class PlanWatch:
    """Watch of one process: the list first, then each change late and in order."""

    def __init__(self, moves: PlannedMoves, plans: RebalancePlans, clock: LoopClock, seed: str) -> None:
        self._moves = moves
        self._plans = plans
        self._events = LateEvents(clock, f"{seed}/plan watch")

    def start(self) -> None:
        """List, and watch from then on."""
        for body in self._moves.bodies.values():
            self._plans.plan_changed(msgspec.convert(body, StoredPlan))
        self._moves.listeners.append(self._changed)

    def _changed(self, body: dict[str, Any], is_deleted: bool) -> None:
        handle = self._plans.plan_deleted if is_deleted else self._plans.plan_changed
        self._events.deliver(handle, msgspec.convert(body, StoredPlan))
