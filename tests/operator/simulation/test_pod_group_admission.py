"""Tests of PodGroups in files: admission as by an API server, and translation as in the operator."""

from __future__ import annotations

from pathlib import Path

import pytest
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.simulation import Verdict, simulate

from scheduler_core.errors import ConfigError
from scheduler_core.model.pod_group import GroupSource, PodGroup
from tests.support.presence import present
from tests.support.tables import table

BAYPLAN = "{apiVersion: bayplan.dev/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2}}"
BAYPLAN_WITH_CLASS = (
    "{apiVersion: bayplan.dev/v1alpha1, kind: PodGroup, metadata: {name: g}, "
    "spec: {minMember: 2, priorityClassName: high}}"
)
PLUGINS = "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2}}"
NATIVE = (
    "{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: g}, "
    "spec: {priorityClassName: high, schedulingPolicy: {gang: {minCount: 2}}}}"
)
OLDER = NATIVE.replace("v1beta1", "v1alpha2")
HIGH = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 7}"
POD_WITH_GROUP_NAME = (
    "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulingGroup: {podGroupName: g}, containers: "
    "[{name: m, image: x}]}}"
)
PLUGINS_LABELLED = (
    "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {scheduling.x-k8s.io/pod-group: g}}, spec: {containers: "
    "[{name: m, image: x}]}}"
)

BAYPLAN_LABELLED = PLUGINS_LABELLED.replace("scheduling.x-k8s.io/pod-group", "bayplan.dev/pod-group")
NODE = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 9}}}"


def admit_documents(path: Path, *documents: str, allow_invalid: bool = False) -> AdmittedCluster:
    """Write the documents to a file and admit its objects."""
    file = path / "f.yaml"
    file.write_text("\n---\n".join(documents))
    return admit(read_cluster_files([str(file)], allow_invalid=allow_invalid))


@table(
    "document, source, priority",
    ("bayplan", BAYPLAN, GroupSource.BAYPLAN, None),
    ("bayplan with priority class", BAYPLAN_WITH_CLASS, GroupSource.BAYPLAN, 7),
    ("scheduler-plugins", PLUGINS, GroupSource.SCHEDULER_PLUGINS, None),
    ("native with priority class", NATIVE, GroupSource.NATIVE, 7),
    ("native in the older version", OLDER, GroupSource.NATIVE, 7),
)
def test_groups_of_three_apis(tmp_path: Path, document: str, source: GroupSource, priority: int | None) -> None:
    """Groups get namespace and UID, and the priority of their class."""
    (group,) = admit_documents(tmp_path, document, HIGH).groups
    assert isinstance(group, PodGroup)
    assert (group.key.source, str(group.key), group.min_member) == (source, "default/g", 2)
    assert group.priority == priority
    assert group.uid


def test_one_name_in_several_apis(tmp_path: Path) -> None:
    """Groups of the same name in several APIs are different groups."""
    assert len({group.uid for group in admit_documents(tmp_path, BAYPLAN, PLUGINS, NATIVE, HIGH).groups}) == 3


@table(
    "documents, problem",
    ("duplicate", (BAYPLAN, BAYPLAN), "document 2 (PodGroup default/g): is already defined in"),
    ("invalid field", (BAYPLAN.replace("2", "0"),), "document 1 (PodGroup g): spec.minMember: "),
    ("wrong type", (PLUGINS.replace("2}}", "x}}"),), "document 1 (PodGroup g): spec.minMember: must be a whole number"),
    (
        "missing priority class",
        (NATIVE,),
        'spec.priorityClassName: there is no PriorityClass "high"; add it to the files or correct the name',
    ),
)
def test_invalid_groups(tmp_path: Path, documents: tuple[str, ...], problem: str) -> None:
    """The problem of an invalid group has its place."""
    with pytest.raises(ConfigError) as caught:
        admit_documents(tmp_path, *documents)
    assert problem in str(caught.value)


@table("default, priority", ("no default class", "", 0), ("default class", "true", 7))
def test_a_native_group_without_a_class(tmp_path: Path, default: str, priority: int) -> None:
    """A native group without a priority class gets the priority of the default class, like its members."""
    high = HIGH.replace("value: 7", f"value: 7, globalDefault: {default}") if default else HIGH
    (group,) = admit_documents(tmp_path, NATIVE.replace("priorityClassName: high, ", ""), high).groups
    assert group.priority == priority


@table(
    "field, problem",
    ("claims", "resourceClaims: [{name: c, resourceClaimName: d}]", "resource claims of groups are not supported"),
    ("unknown field", "nodeClass: fast", "unknown field, which may constrain the group"),
)
def test_an_unsupported_group(tmp_path: Path, field: str, problem: str) -> None:
    """The members of an unsupported group are gated with the field, and a notice reports it."""
    unsupported = NATIVE.replace("priorityClassName: high", field)
    plain = POD_WITH_GROUP_NAME.replace("schedulingGroup: {podGroupName: g}, ", "").replace("name: p}", "name: plain}")
    cluster = admit_documents(tmp_path, NODE, POD_WITH_GROUP_NAME, plain, unsupported, allow_invalid=True)
    result = simulate(cluster)
    gated, scheduled = result.pods
    assert problem in present(result.gangs[0].reason)
    assert (gated.verdict, gated.node, scheduled.node) == (Verdict.GATED, None, "n")
    assert f"cannot be scheduled: spec.{field.partition(':')[0]}: {problem}" in present(gated.reason)
    assert any(problem in notice for notice in cluster.notices)


@pytest.mark.parametrize(("cpus", "bound"), [(4, 4), (3, 0)])
def test_groups_of_a_tree_are_scheduled_completely_or_not(tmp_path: Path, cpus: int, bound: int) -> None:
    """The groups below a CompositePodGroup are scheduled completely or not, and a notice names the feature gate."""
    root = (
        "{apiVersion: scheduling.k8s.io/v1alpha3, kind: CompositePodGroup, metadata: {name: all}, "
        "spec: {workloadRef: {workloadName: w, templateName: t}, schedulingPolicy: {gang: {minGroupCount: 2}}}}"
    )
    groups = [
        NATIVE.replace(
            "priorityClassName: high",
            "parentCompositePodGroupName: all, workloadRef: {workloadName: w, templateName: t}",
        ).replace("name: g}", f"name: {name}}}")
        for name in "ab"
    ]
    groups[1] = groups[1].replace("v1beta1", "v1alpha3")
    pods = [
        POD_WITH_GROUP_NAME.replace("podGroupName: g", f"podGroupName: {name}")
        .replace("name: p}", f"name: {name}{number}}}")
        .replace("name: m,", "name: m, resources: {requests: {cpu: 1}},")
        for name in "ab"
        for number in range(2)
    ]
    cluster = admit_documents(tmp_path, NODE.replace("cpu: 4", f"cpu: {cpus}"), root, *groups, *pods)
    assert sum(bool(each.node) for each in simulate(cluster).pods) == bound
    assert any("feature gate CompositePodGroups" in notice for notice in cluster.notices)


def test_a_missing_priority_class(tmp_path: Path) -> None:
    """A Bayplan PodGroup with a missing priority class gets the highest priority of its members, with a notice."""
    (notice,) = admit_documents(tmp_path, BAYPLAN_WITH_CLASS).notices
    assert notice == (
        'PodGroup default/g names PriorityClass "high", which is not in the files; it gets the highest priority of its '
        "members"
    )


@table(
    "document, group, remedy",
    (
        "bayplan",
        BAYPLAN_LABELLED,
        BAYPLAN,
        "of bayplan.dev exists; create or correct it, or create the pod without label bay",
    ),
    (
        "scheduler-plugins",
        PLUGINS_LABELLED,
        PLUGINS,
        "of scheduling.x-k8s.io exists; create or correct it, or create the pod without label sch",
    ),
    (
        "native",
        POD_WITH_GROUP_NAME,
        NATIVE.replace("priorityClassName: high, ", ""),
        "of scheduling.k8s.io exists; create or correct it, or create the pod without spec.sch",
    ),
)
def test_a_pod_without_its_group_is_gated(tmp_path: Path, document: str, group: str, remedy: str) -> None:
    """A pod waits for its missing group with a remedy, and with the group it waits for the quorum."""
    (placed,) = simulate(admit_documents(tmp_path, NODE, document)).pods
    assert (placed.verdict, placed.node) == (Verdict.GATED, None)
    assert present(placed.reason).startswith(
        'waiting for pods\'s pod group "g" to appear in scheduling queue: no valid PodGroup default/g'
    )
    assert remedy in present(placed.reason)
    (placed,) = simulate(admit_documents(tmp_path, NODE, document, group)).pods
    assert placed.reason == "waits for gang default/g: 1 of 2 members exist; 1 more is needed."
