"""The limit on the number of constraints of a pod."""

from __future__ import annotations

import pytest

from scheduler_core.errors import PodTooDemandingError
from scheduler_core.model.affinity import Affinity, NodeSelectorTerm, Requirement
from scheduler_core.model.pod import (
    ClaimVolumeSource,
    Container,
    PodSpec,
    RbdVolume,
    ResourceRequirements,
    TopologySpreadConstraint,
    Volume,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import MAX_DEMANDS, demand_count
from tests.support.affinities import affinity_to, anti_affinity_to, app, node_affinity, term
from tests.support.builders import node, pod
from tests.support.tables import table

EXISTS = Requirement("zone", "Exists")
ONE_APP = app("web")
TERM = term("web", selector=ONE_APP)


def requesting(*names: str) -> Container:
    return Container(resources=ResourceRequirements(requests=dict.fromkeys(names, "1")))


@table(
    "spec, count",
    ("none", PodSpec(), 0),
    ("node selector", PodSpec(node_selector={"a": "1", "b": "2"}), 2),
    ("resources by name", PodSpec(containers=(requesting("cpu"), requesting("cpu", "memory"))), 2),
    ("containers", PodSpec(containers=(Container(),) * 6, init_containers=(Container(),) * 3), 2),
    (
        "volumes that are attached",
        PodSpec(
            volumes=(Volume("a", claim=ClaimVolumeSource("a")), Volume("b", rbd=RbdVolume(("m", "n"))), Volume("c"))
        ),
        4,
    ),
    ("spread", PodSpec(topology_spread_constraints=(TopologySpreadConstraint(label_selector=ONE_APP),) * 2), 4),
    (
        "node affinity",
        PodSpec(affinity=node_affinity(NodeSelectorTerm((EXISTS, EXISTS), (EXISTS,)), preferred=[(1, EXISTS)])),
        6,
    ),
    (
        "pod affinity",
        PodSpec(
            affinity=Affinity(
                pod_affinity=affinity_to(TERM).pod_affinity,
                pod_anti_affinity=anti_affinity_to(preferred=[(1, TERM)]).pod_anti_affinity,
            )
        ),
        6,
    ),
)
def test_demands_are_counted(spec: PodSpec, count: int) -> None:
    """Each requirement, term, constraint and resource counts as one demand."""
    assert demand_count(spec) == count


def test_a_pod_above_the_limit_is_not_compiled() -> None:
    """Compiling a pending pod above the limit raises PodTooDemandingError."""
    columns = NodeColumns()
    columns.compile_pod(pod(node_selector={f"k{number}": "v" for number in range(MAX_DEMANDS)}))
    with pytest.raises(PodTooDemandingError, match="makes 501 demands"):
        columns.compile_pod(pod(node_selector={f"k{number}": "v" for number in range(MAX_DEMANDS + 1)}))


def test_a_bound_pod_above_the_limit_uses_resources() -> None:
    """The requests of a bound pod above the limit are counted, and its constraints on other pods are not."""
    columns = NodeColumns()
    row = columns.add_node(node("n"))
    affinity = anti_affinity_to(*(term("web", f"k{number}") for number in range(MAX_DEMANDS)))
    info = columns.compile_pod(pod(node_name="n", requests={"cpu": "2"}, affinity=affinity))
    columns.add_pod(info, row)
    assert columns.requested[0, row] == 2000
    assert not info.terms.required_anti


def test_a_bound_pod_above_the_limit_uses_its_first_volumes() -> None:
    """The volumes of a bound pod count up to the limit."""
    volumes = tuple(Volume(f"v{number}", claim=ClaimVolumeSource(f"c{number}")) for number in range(2 * MAX_DEMANDS))
    info = NodeColumns().compile_pod(pod(node_name="n", volumes=volumes))
    assert [claim.name for claim in info.volumes.claims] == [f"c{number}" for number in range(MAX_DEMANDS)]
