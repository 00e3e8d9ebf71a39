"""Hypothesis strategies for clusters of the reference profile, with few values, so that pods and nodes often match."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.plain_profile import Condition, PlainNode, PlainPod

KEYS = st.sampled_from(["zone", "size"])
VALUES = st.sampled_from(["a", "b", "1", "3"])
TAINTS = st.tuples(
    st.sampled_from(["dedicated", "busy"]),
    st.sampled_from(["", "x"]),
    st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"]),
)
TOLERATIONS = st.tuples(
    st.sampled_from(["", "dedicated", "busy", "node.kubernetes.io/unschedulable"]),
    st.sampled_from(["Exists", "Equal", ""]),
    st.sampled_from(["", "x"]),
    st.sampled_from(["", "NoSchedule", "PreferNoSchedule"]),
)
PORTS = st.tuples(
    st.sampled_from(["TCP", "UDP"]), st.sampled_from(["", "10.0.0.1", "10.0.0.2"]), st.sampled_from([80, 443])
)
IMAGES = st.sampled_from(["web:1", "db:2"])


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    """Generate one valid requirement."""
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]))
    values: tuple[str, ...] = ()
    if operator in ("In", "NotIn"):
        values = tuple(draw(st.lists(VALUES, min_size=1, max_size=3)))
    elif operator in ("Gt", "Lt"):
        values = (draw(st.sampled_from(["0", "2", "3"])),)
    return draw(KEYS), operator, values


TERMS = st.lists(conditions(), min_size=1, max_size=2).map(tuple)


def pods(name: str, node_name: str = "") -> st.SearchStrategy[PlainPod]:
    """Return pods; running pods have no scheduling constraints."""
    amounts = {
        "name": st.just(name),
        "node_name": st.just(node_name),
        "cpu": st.none() | st.sampled_from([0, 100, 250, 500, 1000]),
        "memory": st.none() | st.sampled_from([0, 64, 300, 1024]),
        "ports": st.lists(PORTS, max_size=2, unique=True).map(tuple),
    }
    if node_name:
        return st.builds(PlainPod, **amounts)
    return st.builds(
        PlainPod,
        **amounts,
        selector=st.lists(st.tuples(KEYS, VALUES), max_size=1).map(tuple),
        required=st.lists(TERMS, max_size=2).map(tuple),
        preferred=st.lists(st.tuples(st.integers(1, 100), TERMS), max_size=3).map(tuple),
        tolerations=st.lists(TOLERATIONS, max_size=3).map(tuple),
        image=IMAGES,
    )


@st.composite
def nodes(draw: st.DrawFn, number: int) -> PlainNode:
    """Generate a node with running pods."""
    name = f"n{number}"
    running = [draw(pods(f"{name}-{index}", name)) for index in range(draw(st.integers(0, 3)))]
    return PlainNode(
        name=name,
        cpu=draw(st.sampled_from([500, 1000, 4000])),
        memory=draw(st.sampled_from([256, 2048, 8192])),
        pods=draw(st.sampled_from([2, 4, 110])),
        labels=tuple(draw(st.dictionaries(KEYS, VALUES)).items()),
        taints=tuple(draw(st.lists(TAINTS, max_size=2, unique=True))),
        cordoned=draw(st.sampled_from([False, False, False, True])),
        images=tuple(draw(st.dictionaries(IMAGES, st.sampled_from([10, 200, 900, 4000]), max_size=2)).items()),
        running_pods=tuple(running),
    )


CLUSTERS = st.integers(1, 6).flatmap(lambda count: st.tuples(*(nodes(number) for number in range(count))))
