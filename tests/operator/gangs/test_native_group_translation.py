"""Tests of the translation of native PodGroups in all versions, and of unsupported groups."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from bayplan.gangs.group_translation import (
    NATIVE_VERSIONS,
    NativeGroup,
    UnsupportedGroupError,
    from_composite,
    from_native,
)

from scheduler_core.errors import ConfigError
from scheduler_core.model.pod import ResourceClaimReference
from scheduler_core.model.pod_group import (
    NEWEST_VERSIONS,
    CompositePodGroup,
    GroupKey,
    GroupSource,
    GroupTopology,
    PodGroup,
)
from tests.support.tables import table

OLDER, NEWER = "v1alpha2", "v1beta1"
METADATA = {
    "name": "train",
    "namespace": "ml",
    "uid": "0b1c",
    "generation": 3,
    "resourceVersion": "77",
    "creationTimestamp": "2026-11-21T09:00:00Z",
}
# As returned by kube-apiserver v1.36.3 with the feature gates of gangs enabled, without annotations and managedFields.
RECORDED = """
{"kind": "PodGroup", "apiVersion": "scheduling.k8s.io/v1alpha2",
 "metadata": {"name": "train", "namespace": "default", "uid": "9e1aafaa-e449-4811-a117-fa47642b4f79",
              "resourceVersion": "204", "creationTimestamp": "2026-11-21T09:21:54Z",
              "finalizers": ["scheduling.k8s.io/podgroup-protection"]},
 "spec": {"podGroupTemplateRef": null, "schedulingPolicy": {"gang": {"minCount": 3}},
          "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}, "disruptionMode": "Pod", "priority": 0},
 "status": {}}
"""
GANG = {"schedulingPolicy": {"gang": {"minCount": 2}}}
RACK = GroupTopology("rack", prefers_allocated=True)


def native(spec: dict[str, Any], version: str) -> PodGroup:
    body = json.dumps({"metadata": METADATA, "spec": spec})
    return from_native(msgspec.json.decode(body, type=NativeGroup), version)


def expected(min_member: int, version: str, **more: Any) -> PodGroup:
    created = datetime(2026, 11, 21, 9, tzinfo=UTC)
    newer = {"priority": 0, "is_uniform": True, "waits_for_gated": True}
    more = {**newer, **more} if version == NEWER else {"preempts_in_domain": False, **more}
    key = GroupKey(GroupSource.NATIVE, "ml", "train")
    return PodGroup(key, "0b1c", min_member, created, 3, version=version, is_fresh=True, **more)


def test_the_newest_version_of_the_model_is_the_first_of_the_table() -> None:
    """An object without a version counts as one of the newest version."""
    assert next(iter(NATIVE_VERSIONS)) == NEWEST_VERSIONS[GroupSource.NATIVE]


def test_a_recorded_object() -> None:
    """An object of a real API server is translated; it has no generation and a priority set by admission."""
    decoded = msgspec.json.decode(RECORDED, type=NativeGroup)
    assert from_native(decoded, OLDER) == PodGroup(
        GroupKey(GroupSource.NATIVE, "default", "train"),
        "9e1aafaa-e449-4811-a117-fa47642b4f79",
        min_member=3,
        created=datetime(2026, 11, 21, 9, 21, 54, tzinfo=UTC),
        priority=0,
        topology=GroupTopology("example.com/rack", prefers_allocated=True),
        version=OLDER,
        preempts_in_domain=False,
        is_fresh=True,
    )


@table(
    "spec, min_member, more",
    ("basic policy", {"schedulingPolicy": {"basic": {}}}, 1, {"is_basic": True}),
    (
        "all fields",
        {
            **GANG,
            "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
            "disruptionMode": "PodGroup",
            "priorityClassName": "high",
            "priority": 1000,
        },
        2,
        {"topology": RACK, "disrupts_whole": True, "priority": 1000},
    ),
    ("disruption by pod, priority 0", {**GANG, "disruptionMode": "Pod", "priority": 0}, 2, {"priority": 0}),
    ("no constraint", {**GANG, "schedulingConstraints": {}}, 2, {}),
)
def test_fields_of_the_older_version(spec: dict[str, Any], min_member: int, more: dict[str, Any]) -> None:
    """Each field of ``v1alpha2`` is translated."""
    assert native(spec, OLDER) == expected(min_member, OLDER, **more)


@table(
    "spec, min_member, more",
    ("basic policy", {"schedulingPolicy": {"basic": {}}}, 1, {"is_basic": True}),
    (
        "all fields",
        {
            **GANG,
            "workloadRef": {"workloadName": "w", "templateName": "t"},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
            "disruptionMode": {"all": {}},
            "priorityClassName": "high",
            "priority": 1000,
            "preemptionPolicy": "Never",
        },
        2,
        {"topology": RACK, "disrupts_whole": True, "priority": 1000, "preemption_policy": "Never"},
    ),
    ("disruption by pod", {**GANG, "disruptionMode": {"single": {}}}, 2, {}),
    ("no claims", {**GANG, "resourceClaims": []}, 2, {}),
)
def test_fields_of_the_newer_version(spec: dict[str, Any], min_member: int, more: dict[str, Any]) -> None:
    """Each field of ``v1beta1`` is translated."""
    assert native(spec, NEWER) == expected(min_member, NEWER, **more)


@pytest.mark.parametrize("version", [OLDER, NEWER])
@table(
    "spec, path",
    ("no policy", {"schedulingPolicy": {}}, "spec.schedulingPolicy"),
    ("two policies", {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}, "spec.schedulingPolicy"),
    ("unknown policy", {"schedulingPolicy": {"elastic": {}}}, "spec.schedulingPolicy.elastic"),
    (
        "unknown field of a policy",
        {"schedulingPolicy": {"gang": {"minCount": 2, "maxCount": 3}}},
        "spec.schedulingPolicy.gang.maxCount",
    ),
    ("unknown field", {**GANG, "nodeClass": "fast"}, "spec.nodeClass"),
    ("constraint", {**GANG, "schedulingConstraints": {"nodes": []}}, "spec.schedulingConstraints.nodes"),
    (
        "two domains",
        {**GANG, "schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
        "spec.schedulingConstraints.topology",
    ),
    (
        "unknown field of a domain",
        {**GANG, "schedulingConstraints": {"topology": [{"key": "a", "level": 2}]}},
        "spec.schedulingConstraints.topology[0].level",
    ),
    ("claims of the group", {**GANG, "resourceClaims": [{"name": "c"}]}, "spec.resourceClaims"),
)
def test_unsupported_groups(version: str, spec: dict[str, Any], path: str) -> None:
    """A field, policy or constraint that Bayplan does not support makes the group unsupported; none is ignored."""
    with pytest.raises(UnsupportedGroupError) as caught:
        native(spec, version)
    assert [problem.path for problem in caught.value.problems] == [path]


@table(
    "spec, path",
    (
        "child of a composite group",
        {**GANG, "parentCompositePodGroupName": "all", "workloadRef": {}},
        "spec.parentCompositePodGroupName",
    ),
    ("no disruption mode", {**GANG, "disruptionMode": {}}, "spec.disruptionMode"),
    ("unknown mode", {**GANG, "disruptionMode": {"some": {}}}, "spec.disruptionMode.some"),
    ("field of the older version", {**GANG, "podGroupTemplateRef": {}}, "spec.podGroupTemplateRef"),
)
def test_unsupported_groups_of_the_newer_version(spec: dict[str, Any], path: str) -> None:
    """A field that only the newer version has makes the group unsupported."""
    with pytest.raises(UnsupportedGroupError) as caught:
        native(spec, NEWER)
    assert [problem.path for problem in caught.value.problems] == [path]


@pytest.mark.parametrize(
    ("spec", "version", "path"),
    [
        pytest.param({"schedulingPolicy": {"gang": {"minCount": "2"}}}, NEWER, "spec.schedulingPolicy.gang.minCount"),
        pytest.param({**GANG, "disruptionMode": "PodGroup"}, NEWER, "spec.disruptionMode"),
        pytest.param({**GANG, "disruptionMode": {"all": {}}}, OLDER, "spec.disruptionMode"),
        pytest.param({**GANG, "disruptionMode": "Node"}, OLDER, "spec.disruptionMode"),
        pytest.param({**GANG, "preemptionPolicy": "Sometimes"}, NEWER, "spec.preemptionPolicy"),
    ],
)
def test_values_of_wrong_types_are_problems(spec: dict[str, Any], version: str, path: str) -> None:
    """A value of the wrong type is a problem with its field."""
    with pytest.raises(ConfigError) as caught:
        native(spec, version)
    assert [problem.path for problem in caught.value.problems] == [path]


def composite(spec: dict[str, Any]) -> CompositePodGroup:
    body = json.dumps({"metadata": METADATA, "spec": spec})
    return from_composite(msgspec.json.decode(body, type=NativeGroup), "v1alpha3")


@pytest.mark.parametrize("version", [NEWER, "v1alpha3"])
def test_the_parent_of_a_group_is_read(version: str) -> None:
    """The parent of a group is read if CompositePodGroups are read."""
    body = json.dumps({"metadata": METADATA, "spec": {**GANG, "parentCompositePodGroupName": "all", "workloadRef": {}}})
    group = from_native(msgspec.json.decode(body, type=NativeGroup), version, are_trees_read=True)
    assert (group.parent, group.parent_key) == ("all", GroupKey(GroupSource.COMPOSITE, "ml", "all"))


@table(
    "spec, more",
    ("basic policy", {"schedulingPolicy": {"basic": {}}}, {}),
    (
        "all fields",
        {
            "schedulingPolicy": {"gang": {"minGroupCount": 3}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
            "disruptionMode": {"all": {}},
            "priority": 7,
            "priorityClassName": "high",
            "preemptionPolicy": "Never",
            "parentCompositePodGroupName": "all",
            "workloadRef": {"workloadName": "w", "templateName": "t"},
        },
        {
            "min_groups": 3,
            "topology": GroupTopology("rack", prefers_allocated=True),
            "disrupts_whole": True,
            "priority": 7,
            "preemption_policy": "Never",
            "parent": "all",
        },
    ),
)
def test_composite_groups(spec: dict[str, Any], more: dict[str, Any]) -> None:
    """Each field of a CompositePodGroup is translated."""
    key = GroupKey(GroupSource.COMPOSITE, "ml", "train")
    assert composite(spec) == CompositePodGroup(key, "0b1c", generation=3, version="v1alpha3", **more)


@table(
    "spec, path",
    ("no policy", {}, "spec.schedulingPolicy"),
    ("two policies", {"schedulingPolicy": {"basic": {}, "gang": {}}}, "spec.schedulingPolicy"),
    ("unknown policy", {"schedulingPolicy": {"other": {}}}, "spec.schedulingPolicy.other"),
    ("no disruption mode", {"schedulingPolicy": {"basic": {}}, "disruptionMode": {}}, "spec.disruptionMode"),
    ("unknown field", {"schedulingPolicy": {"basic": {}}, "claims": []}, "spec.claims"),
)
def test_unsupported_composite_groups(spec: dict[str, Any], path: str) -> None:
    """An unsupported CompositePodGroup is an error, so that its pods are gated."""
    with pytest.raises(UnsupportedGroupError) as caught:
        composite(spec)
    assert [problem.path for problem in caught.value.problems] == [path]


@table(
    "claims, path",
    ("by name", [{"name": "a", "resourceClaimName": "x"}], ""),
    ("by template", [{"name": "a", "resourceClaimTemplateName": "x"}], ""),
    ("no source", [{"name": "a"}], "spec.resourceClaims[0]"),
    (
        "two sources",
        [{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}],
        "spec.resourceClaims[0]",
    ),
    (
        "unknown field",
        [{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimName": "y", "level": 1}],
        "spec.resourceClaims[1]",
    ),
    ("wrong type", [{"name": "a", "resourceClaimName": 1}], "spec.resourceClaims[0]"),
)
def test_claims_of_groups(claims: list[dict[str, Any]], path: str) -> None:
    """With the feature gate on, claims are read as references, and unsupported ones make the group unsupported."""
    body = json.dumps({"metadata": METADATA, "spec": {**GANG, "resourceClaims": claims}})
    decoded = msgspec.json.decode(body, type=NativeGroup)
    if not path:
        group = from_native(decoded, "v1beta1", are_claims_read=True)
        assert group.resource_claims == (msgspec.convert(claims[0], ResourceClaimReference),)
        return
    with pytest.raises(UnsupportedGroupError) as caught:
        from_native(decoded, "v1beta1", are_claims_read=True)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_claims_of_the_older_version_are_unsupported() -> None:
    """Claims are unsupported in v1alpha2, because their semantics are those of Kubernetes 1.37."""
    body = json.dumps({"metadata": METADATA, "spec": {**GANG, "resourceClaims": [{"name": "a"}]}})
    with pytest.raises(UnsupportedGroupError, match="not supported"):
        from_native(msgspec.json.decode(body, type=NativeGroup), "v1alpha2", are_claims_read=True)
