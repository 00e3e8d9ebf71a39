"""The document that ``bayplan status`` prints.

The fields are those of the JSON and YAML that users read (``docs/operate/introspection.md``), in camel case. Times are
elapsed seconds, because the clocks of hosts differ.
"""

from __future__ import annotations

from msgspec import Struct

from bayplan.kube.served_apis import ServerSupport


class ExtenderState(Struct, frozen=True, rename="camel"):
    """Extender of a profile.

    Attributes:
        state: State of its circuit breaker: Closed, Open or HalfOpen.
        last_error: Its last error, "" for none.
    """

    url_prefix: str
    state: str
    last_error: str = ""


class ProfileState(Struct, frozen=True, rename="camel"):
    """Live profile.

    Attributes:
        name: schedulerName that it serves.
        in_flight: Number of attempts in progress with this revision.
        unschedulable: Number of pods that wait for an event that may make them schedulable.
        gated: Number of pods that a PreEnqueue plugin gates.
        scheduled: Number of pods bound since the process started.
        rejected: Number of attempts that found no node.
        errors: Number of attempts that ended in an error.
        last_error: The last error, "" for none.
        last_error_seconds: Time since the last error; None for none.
    """

    name: str
    revision: str
    in_flight: int
    active: int
    backoff: int
    unschedulable: int
    gated: int
    scheduled: int
    rejected: int
    errors: int
    last_error: str = ""
    extenders: tuple[ExtenderState, ...] = ()
    last_error_seconds: float | None = None


class QueuedPodState(Struct, frozen=True, rename="camel"):
    """Pod in the queue.

    Attributes:
        pod: ``namespace/name``.
        place: active, backoff, errorBackoff, unschedulable, gated, parked or inFlight.
        seconds: Time in that place.
        attempts: Number of attempts so far.
        rejected_by: Plugins that rejected it in its last attempt.
        gated_by: Plugin that gates it, "" for none.
        backoff_seconds: Time until its backoff ends; 0 for none.
        nominated_node: Nominated node, "" for none.
    """

    pod: str
    place: str
    profile: str
    priority: int
    seconds: float
    attempts: int
    rejected_by: tuple[str, ...] = ()
    gated_by: str = ""
    reasons: tuple[str, ...] = ()
    backoff_seconds: float = 0.0
    nominated_node: str = ""


class GangState(Struct, frozen=True, rename="camel"):
    """Waiting gang.

    Attributes:
        gang: ``namespace/name`` of its PodGroup.
        api: API group of its PodGroup.
        place: Place in the queue, as for a pod; "" while members are missing.
        min_member: minMember of the PodGroup; 0 if there is no PodGroup.
        needed: Number of waiting members that must be scheduled together.
        waiting: Number of members that wait to be scheduled together.
        placed: Number of members that are bound or assumed.
        seconds: Waiting time of the gang.
        reservation: Reserved nodes or domain, "" for none.
        reason: Reason of the PodGroup's condition, one word in CamelCase.
        message: Message of the PodGroup's condition.
    """

    gang: str
    api: str
    place: str
    priority: int
    min_member: int
    needed: int
    waiting: int
    placed: int
    seconds: float
    reservation: str = ""
    reason: str = ""
    message: str = ""


class WaitingPodState(Struct, frozen=True, rename="camel"):
    """Pod that waits at Permit.

    Attributes:
        pod: ``namespace/name``.
        node: Node on which it is assumed.
        plugins: Plugins that have not allowed it yet, with the seconds until their timeouts.
    """

    pod: str
    node: str
    seconds: float
    plugins: dict[str, float]


class Nomination(Struct, frozen=True, rename="camel"):
    """Pod and its nominated node, or the node on which it is assumed."""

    pod: str
    node: str


class CacheState(Struct, frozen=True, rename="camel"):
    """Content of the scheduler's cache.

    Attributes:
        pods: Number of bound and assumed pods.
        assumed: Pods whose bind no watch event has confirmed yet, with their nodes.
    """

    nodes: int
    pods: int
    assumed: tuple[Nomination, ...] = ()


class DevicesState(Struct, frozen=True, rename="camel"):
    """Devices and resource claims of Dynamic Resource Allocation.

    Attributes:
        api_version: API version in which they are read; "" if none is.
        problem: Why claims are not allocated now; "" if they are.
        devices: Number of devices of the newest generation of each pool.
        in_use: Number of allocated devices; a device that several claims share counts once.
        pools_complete: Number of pools with all slices.
        pools_incomplete: Number of pools of which slices are missing; their devices are not allocated.
        pools_invalid: Number of pools whose slices contradict each other; their devices are not allocated.
        claims_allocated: Number of claims with an allocation.
        claims_pending: Number of claims without one.
        claims_in_flight: Number of claims whose allocation is decided but not written yet; they are neither of these.
    """

    api_version: str = ""
    problem: str = ""
    devices: int = 0
    in_use: int = 0
    pools_complete: int = 0
    pools_incomplete: int = 0
    pools_invalid: int = 0
    claims_allocated: int = 0
    claims_pending: int = 0
    claims_in_flight: int = 0


class ReservationCounts(Struct, frozen=True, rename="camel"):
    """Numbers of NodeReservations.

    Attributes:
        held: Number of reservations whose room is held.
        pods: Number of pods that it is held for.
        pending: Number of reservations whose room does not exist yet.
        impossible: Number of reservations whose pods fit on no node, whatever pods end; they are not pending.
        consumed: Number of reservations whose pods are bound.
        expired: Number of reservations whose time is over.
    """

    held: int = 0
    pods: int = 0
    pending: int = 0
    impossible: int = 0
    consumed: int = 0
    expired: int = 0


class InformerState(Struct, frozen=True, rename="camel"):
    """Informer of a resource.

    Attributes:
        synced: Whether its first list is complete.
        last_error: Its last error, "" while it works.
        undecodable: Number of objects of which the newest version cannot be decoded.
        unprocessed: Number of objects with a change that failed to be processed and is retried.
    """

    resource: str
    objects: int
    synced: bool
    last_error: str = ""
    undecodable: int = 0
    unprocessed: int = 0


class ContestedNodeState(Struct, frozen=True, rename="camel"):
    """Node that a bind of another scheduler has overcommitted in the last ten minutes.

    Attributes:
        rivals: schedulerName of the pods that were bound by others, the last one at the end.
        pods: The last of these pods, as ``namespace/name``.
        seconds: Time since the first of these binds.
        last_seconds: Time since the last of these binds.
        is_overcommitted: Whether its pods request more than is allocatable now.
        is_avoided: Whether pods prefer other nodes now.
    """

    node: str
    rivals: tuple[str, ...]
    pods: tuple[str, ...]
    count: int
    seconds: float
    last_seconds: float
    is_overcommitted: bool
    is_avoided: bool


class PlannedMoveState(Struct, frozen=True, rename="camel"):
    """Move of a plan.

    Attributes:
        pod: The evicted pod, as ``namespace/name``.
        source: Node that the pod leaves.
        target: Node of its replacement.
        state: Pending, Evicting, Moved or Failed.
    """

    pod: str
    source: str
    target: str
    state: str


class LeftAlone(Struct, frozen=True, rename="camel"):
    """Pods that a plan leaves alone for one reason, of those that had to move for more gain.

    Attributes:
        count: Number of the pods.
        pods: The first of them, as ``namespace/name``.
    """

    reason: str
    count: int
    pods: tuple[str, ...] = ()


class PlanState(Struct, frozen=True, rename="camel", kw_only=True):
    """RebalancePlan.

    Attributes:
        phase: As in its status; "" before the first.
        planned: Number of moves of the plan.
        moved: Number of moves that were made.
        gain: What the moves reach.
        message: Message of its condition Completed.
        moves: The first moves.
        omitted: Number of the other moves.
    """

    name: str
    objective: str
    dry_run: bool
    phase: str = ""
    planned: int = 0
    moved: int = 0
    cost: int = 0
    gain: str = ""
    message: str = ""
    moves: tuple[PlannedMoveState, ...] = ()
    omitted: int = 0
    left_alone: tuple[LeftAlone, ...] = ()


class Status(Struct, frozen=True, rename="camel"):
    """Status of the operator.

    Attributes:
        role: Role of a standby, as text; "" for a process that schedules.
        missing: Conditions that are not met yet for readiness.
        warnings: Objects that cannot be decoded or processed, so that what depends on them fails closed.
        uptime_seconds: Time since the start of the process.
        binding: Number of binding cycles in progress.
        is_suspended: Whether the scheduling cycle waits for an extender, or is interrupted because it takes long.
        places: Number of pods in each place of the queue.
        parked: Number of pods whose schedulerName no live profile serves, by schedulerName.
        queue: Pods in the queue, grouped by place, up to the limit for each place.
        gangs: Waiting gangs by priority and age, up to the limit.
        selector: Label selector of the profiles that this process serves; "" for all.
        server: Version of the API server, and what it lacks.
        namespace: Namespace of the pods and gangs; "" for all. What counts nodes, profiles and devices counts all.
        reservations: NodeReservations of the namespace; None if their feature gate is off.
        contested_nodes: Contested nodes up to the limit, the last overcommitted first.
        plans: RebalancePlans by name, with their first moves up to the limit.
    """

    version: str
    role: str
    missing: tuple[str, ...]
    uptime_seconds: float
    binding: int
    is_suspended: bool
    profiles: tuple[ProfileState, ...]
    places: dict[str, int]
    parked: dict[str, int]
    queue: tuple[QueuedPodState, ...]
    waiting: tuple[WaitingPodState, ...]
    nominations: tuple[Nomination, ...]
    cache: CacheState
    informers: tuple[InformerState, ...]
    waiting_gangs: int = 0
    gangs: tuple[GangState, ...] = ()
    selector: str = ""
    server: ServerSupport = ServerSupport()
    devices: DevicesState = DevicesState()
    warnings: tuple[str, ...] = ()
    namespace: str = ""
    contested: int = 0
    contested_nodes: tuple[ContestedNodeState, ...] = ()
    reservations: ReservationCounts | None = None
    plans: tuple[PlanState, ...] = ()
