"""What is kept of a kind of pods."""

from msgspec.structs import replace

from scheduler_core.model.pod import Pod
from tests.support.builders import node, pod
from tests.support.scheduling import profile, rig


def _of_one_kind(number: int) -> Pod:
    return pod(f"p{number}", requests={"cpu": "100m"}, labels={"app": "x"})


def test_a_kind_outlives_the_binding_of_its_pods() -> None:
    """Pods are bound and confirmed while others like them still come, and these have no node yet."""
    world = rig()
    (instance,) = world.serve(profile())
    world.add(node("a"), node("b"), *map(_of_one_kind, range(2)))
    attempts = [world.decide(), world.decide()]
    kinds, compiled = world.context.kinds_of(instance), world.context.cache.columns.compile_pod
    kind = kinds.find(compiled(_of_one_kind(2)))
    assert kind is not None
    assert kind.repetition is not None
    for attempt in attempts:
        assert attempt is not None
        old = attempt.info.pod
        labels = {**old.metadata.labels, "topology.kubernetes.io/zone": "z"}
        bound = replace(
            old,
            spec=replace(old.spec, node_name=attempt.node_name),
            metadata=replace(old.metadata, labels=labels, resource_version="2"),
        )
        world.scheduler.feed.pod_updated(old, bound)
    assert kinds.find(compiled(_of_one_kind(3))) is kind
