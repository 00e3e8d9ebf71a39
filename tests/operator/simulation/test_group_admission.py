"""PodGroups in files: completed as an API server would, and translated as the operator does."""

from __future__ import annotations

from pathlib import Path

import pytest
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.group_admission import served_sources

from scheduler_core.errors import ConfigError
from scheduler_core.model.pod_group import GroupSource

BAYPLAN = "{apiVersion: bayplan.dev/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2}}"
CLASSED = (
    "{apiVersion: bayplan.dev/v1alpha1, kind: PodGroup, metadata: {name: g}, "
    "spec: {minMember: 2, priorityClassName: high}}"
)
PLUGINS = "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: g}, spec: {minMember: 2}}"
NATIVE = (
    "{apiVersion: scheduling.k8s.io/v1alpha2, kind: PodGroup, metadata: {name: g}, "
    "spec: {priorityClassName: high, schedulingPolicy: {gang: {minCount: 2}}}}"
)
HIGH = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 7}"
NAMED = (
    "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulingGroup: {podGroupName: g}, containers: "
    "[{name: m}]}}"
)
LABELLED = (
    "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {scheduling.x-k8s.io/pod-group: g}}, spec: {containers: "
    "[{name: m}]}}"
)


def admitted(path: Path, *documents: str) -> AdmittedCluster:
    """Write a file and admit what it holds."""
    file = path / "f.yaml"
    file.write_text("\n---\n".join(documents))
    return admit(read_cluster_files([str(file)]))


@pytest.mark.parametrize(
    ("document", "source", "priority"),
    [
        pytest.param(BAYPLAN, GroupSource.BAYPLAN, None, id="Bayplan's"),
        pytest.param(CLASSED, GroupSource.BAYPLAN, 7, id="Bayplan's with a class"),
        pytest.param(PLUGINS, GroupSource.SCHEDULER_PLUGINS, None, id="scheduler-plugins'"),
        pytest.param(NATIVE, GroupSource.NATIVE, 7, id="Kubernetes' own, its class resolved"),
    ],
)
def test_groups_of_three_apis(tmp_path: Path, document: str, source: GroupSource, priority: int | None) -> None:
    """Namespace and UID are filled in, and the class is looked up."""
    (group,) = admitted(tmp_path, document, HIGH).groups
    assert (group.key.source, str(group.key), group.min_member) == (source, "default/g", 2)
    assert group.priority == priority
    assert group.uid


def test_one_name_in_several_apis(tmp_path: Path) -> None:
    """These are different groups."""
    assert len({group.uid for group in admitted(tmp_path, BAYPLAN, PLUGINS, NATIVE, HIGH).groups}) == 3


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        pytest.param(
            (BAYPLAN, BAYPLAN),
            "document 2 (PodGroup default/g): stands in",
            id="twice",
        ),
        pytest.param(
            (BAYPLAN.replace("2", "0"),), "document 1 (PodGroup default/g): spec.minMember: ", id="an invalid field"
        ),
        pytest.param(
            (PLUGINS.replace("2}}", "x}}"),),
            "document 1 (PodGroup default/g): spec.minMember: must be a whole number",
            id="another type",
        ),
        pytest.param(
            (NATIVE,),
            'spec.priorityClassName: there is no PriorityClass "high"; add it to the files or correct the name',
            id="a class that is refused",
        ),
    ],
)
def test_what_is_not_valid(tmp_path: Path, documents: tuple[str, ...], problem: str) -> None:
    """It is told with its place."""
    with pytest.raises(ConfigError) as caught:
        admitted(tmp_path, *documents)
    assert problem in str(caught.value)


def test_a_class_that_is_not_there(tmp_path: Path) -> None:
    """As in a cluster a Bayplan PodGroup stands by its highest member then, and that is said."""
    assert admitted(tmp_path, CLASSED).notices == (
        'PodGroup default/g names PriorityClass "high", which no file holds: its highest member\'s priority counts',
    )


@pytest.mark.parametrize(
    ("documents", "served"),
    [
        pytest.param((), {GroupSource.BAYPLAN}, id="Bayplan's always"),
        pytest.param((PLUGINS,), {GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS}, id="one that has a group"),
        pytest.param((LABELLED,), {GroupSource.BAYPLAN}, id="a label alone is a label"),
        pytest.param((NAMED,), {GroupSource.BAYPLAN, GroupSource.NATIVE}, id="a field that only a gate lets through"),
    ],
)
def test_which_apis_count(tmp_path: Path, documents: tuple[str, ...], served: set[GroupSource]) -> None:
    """As a cluster with those objects would have them."""
    cluster = admitted(tmp_path, *documents)
    assert set(served_sources(cluster.groups, cluster.pods)) == served
