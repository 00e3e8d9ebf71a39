"""Random pods for the twin schedulers, with few values of each field, so that selectors match pods."""

from __future__ import annotations

from random import Random

from scheduler_core.model.affinity import Affinity, PodAffinityTerm, Requirement
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import ContainerPort, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from tests.support.affinities import affinity_to, anti_affinity_to, app, node_affinity, term
from tests.support.builders import PodFields, container

ZONES = ("a", "b", "c", "d")
NAMESPACES = ("default", "x", "y")
PROFILES = ("default-scheduler", "other")
_TOPOLOGIES = ("zone", "kubernetes.io/hostname", "l1")
_CPU = ("100m", "250m", "333m", "500m", "1", "1500m")
_MEMORY = ("64Mi", "100M", "300Mi", "1Gi", str(2**53))


def random_app(rng: Random) -> str:
    """Return a value of the label that the selectors of other pods read."""
    return f"a{rng.randrange(7)}"


def random_requests(rng: Random) -> dict[str, str]:
    """Return random requests, for a pod that differs from other pods of its shape only in its requests."""
    return {"cpu": f"{rng.randint(1, 1500)}m", "memory": f"{rng.randint(1, 2000)}Mi"}


def random_pod_fields(rng: Random) -> PodFields:
    """Return the fields of a random shape of pods; many pods are created from one shape."""
    fields: PodFields = {
        "requests": _random_amounts(rng),
        "namespace": rng.choice(NAMESPACES),
        "scheduler_name": rng.choice((PROFILES[0], *PROFILES)),
        "labels": {"app": random_app(rng)} if rng.random() < 0.8 else {},
    }
    if rng.random() < 0.1:
        fields["node_selector"] = {"zone": rng.choice(ZONES)}
    elif rng.random() < 0.1:
        fields["node_selector"] = {f"l{rng.randrange(9)}": str(rng.randrange(5))}
    if rng.random() < 0.3:
        fields["tolerations"] = [_random_toleration(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.15:
        fields["spread"] = [_random_spread(rng) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        fields["affinity"] = _random_affinity(rng)
    if rng.random() < 0.4:
        fields["priority"] = rng.choice((0, 0, 5, 10, 100))
    _add_rare_fields(rng, fields)
    return fields


def _add_rare_fields(rng: Random, fields: PodFields) -> None:
    if rng.random() < 0.08:
        inner = ContainerPort(container_port=80, host_port=80, host_ip=rng.choice(("10.0.0.1", "10.0.0.2")))
        fields["ports"] = [rng.choice((80, 443, inner))]
    if rng.random() < 0.3:
        fields["image"] = f"img{rng.randrange(7)}"
    if rng.random() < 0.03:
        fields["preemption_policy"] = "Never"
    if rng.random() < 0.05:
        fields["init_containers"] = [container(name="init", requests={"cpu": "700m"})]
    if rng.random() < 0.03:
        fields["overhead"] = {"cpu": "50m"}
    if rng.random() < 0.2:
        fields["owners"] = [OwnerReference("ReplicaSet", "rs", f"o{rng.randrange(4)}", controller=True)]


def _random_amounts(rng: Random) -> dict[str, str]:
    amounts: dict[str, str] = {}
    if rng.random() < 0.9:
        amounts["cpu"] = rng.choice(_CPU)
    if rng.random() < 0.8:
        amounts["memory"] = rng.choices(_MEMORY, (20, 20, 20, 20, 1))[0]
    if rng.random() < 0.1:
        amounts["ex.com/r0"] = str(rng.randrange(4))
    if rng.random() < 0.05:
        amounts[f"ex.com/r{rng.randrange(40)}"] = "1"
    if rng.random() < 0.03:
        amounts["ephemeral-storage"] = "1Gi"
    return amounts


def _random_toleration(rng: Random) -> Toleration:
    effect = rng.choice(("", "NoSchedule", "PreferNoSchedule"))
    return Toleration(f"t{rng.randrange(3)}", rng.choice(("Exists", "Equal")), "", effect)


def _random_spread(rng: Random) -> TopologySpreadConstraint:
    when = rng.choice(("DoNotSchedule", "ScheduleAnyway"))
    selector = app(random_app(rng))
    return TopologySpreadConstraint(rng.randint(1, 3), rng.choice(_TOPOLOGIES), when, selector)


def _random_affinity(rng: Random) -> Affinity:
    kind = rng.random()
    if kind < 0.4:
        required_nodes = [_random_node_term(rng)] if rng.random() < 0.4 else []
        return node_affinity(
            *required_nodes,
            preferred=[(rng.randint(1, 100), _random_node_term(rng)) for _ in range(rng.randrange(3))],
        )
    required = [_random_pod_term(rng)] if rng.random() < 0.35 else []
    preferred = [(rng.randint(1, 100), _random_pod_term(rng))] if rng.random() < 0.65 else []
    return (affinity_to if kind < 0.7 else anti_affinity_to)(*required, preferred=preferred)


def _random_node_term(rng: Random) -> Requirement:
    return rng.choice(
        (
            Requirement("zone", "In", tuple(rng.sample(ZONES, 2))),
            Requirement("zone", "NotIn", (rng.choice(ZONES),)),
            Requirement(f"l{rng.randrange(6)}", "Exists"),
            Requirement(f"l{rng.randrange(6)}", "Gt", ("2",)),
            Requirement("zone", "In", ZONES),
        )
    )


def _random_pod_term(rng: Random) -> PodAffinityTerm:
    return term(random_app(rng), rng.choice(_TOPOLOGIES))
