"""What ``bayplan status`` says.

Owns the document: its fields are those of the JSON and YAML that users read (``docs/introspection.md``), in camel case.
It must not know how it came about. Times are seconds that have passed, since clocks differ.
"""

from __future__ import annotations

from msgspec import Struct


class ExtenderState(Struct, frozen=True, rename="camel"):
    """An extender of a profile.

    Attributes:
        state: Of its circuit breaker: Closed, Open or HalfOpen.
        last_error: What it failed with last, "" for nothing.
    """

    url_prefix: str
    state: str
    last_error: str = ""


class ProfileState(Struct, frozen=True, rename="camel"):
    """A live profile.

    Attributes:
        name: The scheduler name that it serves.
        revision: Of what is live.
        in_flight: Attempts under way on this revision.
        active: Pods that are tried next.
        backoff: Pods that wait for the end of their backoff.
        unschedulable: Pods that wait for an event that may help.
        gated: Pods that a PreEnqueue plugin holds.
        scheduled: Pods bound since the process started.
        rejected: Attempts that ended without a node.
        errors: Attempts that ended in an error.
        last_error: The text of the last one.
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


class QueuedPodState(Struct, frozen=True, rename="camel"):
    """A pod in the queue.

    Attributes:
        pod: ``namespace/name``.
        place: active, backoff, errorBackoff, unschedulable, gated, parked or inFlight.
        profile: The scheduler name that it asks for.
        seconds: Since it came to that place.
        attempts: So far.
        rejected_by: Plugins that rejected its last attempt.
        gated_by: The plugin that holds it, "" for none.
        reasons: What that plugin says.
        backoff_seconds: Until its backoff ends; 0 for none.
        nominated_node: The node promised to it, "" for none.
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
    """A gang of which members wait for each other.

    Attributes:
        gang: ``namespace/name`` of its PodGroup.
        api: The API group of that.
        place: Where in the queue it is, as of a pod; "" while its quorum is missing.
        min_member: How many the PodGroup asks for; 0 while there is none.
        needed: How many of those that wait must be placed together.
        waiting: Members that wait to be placed together.
        placed: Members that have a node.
        seconds: Since it has been waiting for its turn.
        reservation: Nodes or the domain that are kept for it, "" for none.
        reason: Why it waits, in one word, as the condition of its PodGroup has it.
        message: Why, in words.
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
    """A pod that waits at Permit.

    Attributes:
        pod: ``namespace/name``.
        node: Where it is held.
        seconds: Since it waits.
        plugins: Who has not allowed it yet, with the seconds until each one's patience ends.
    """

    pod: str
    node: str
    seconds: float
    plugins: dict[str, float]


class Nomination(Struct, frozen=True, rename="camel"):
    """A node promised to a pod."""

    pod: str
    node: str


class CacheState(Struct, frozen=True, rename="camel"):
    """What the scheduler's cache holds.

    Attributes:
        nodes: Nodes.
        pods: Placed pods, assumed ones included.
        assumed: Pods that no watch event has confirmed yet, with their nodes.
    """

    nodes: int
    pods: int
    assumed: tuple[Nomination, ...] = ()


class InformerState(Struct, frozen=True, rename="camel"):
    """A watch.

    Attributes:
        objects: That it knows.
        last_error: What it last failed with, "" while it works.
    """

    resource: str
    objects: int
    synced: bool
    last_error: str = ""


class Status(Struct, frozen=True, rename="camel"):
    """The operator.

    Attributes:
        version: Of Bayplan.
        role: What a standby says of itself; "" for a process that schedules.
        missing: What it waits for before it is ready.
        uptime_seconds: Since it started.
        binding: Binding cycles under way.
        is_suspended: Whether the scheduling cycle waits for an extender.
        places: How many pods are in each place of the queue.
        parked: How many pods ask for a scheduler name that no live profile serves, by name.
        queue: Pods in the queue, those of one place together; at most as many of each place as were asked for.
        waiting_gangs: How many gangs wait.
        gangs: Of these, the first by priority and age; at most as many as were asked for.
        selector: The label selector of the profiles that this process serves; "" for all.
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
