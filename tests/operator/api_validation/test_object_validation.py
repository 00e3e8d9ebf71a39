"""Tests of the validation of objects as by the API server; tests/cluster/test_api_validation.py compares the two."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from bayplan.api_validation import object_validation
from bayplan.api_validation.field_errors import Fields
from bayplan.api_validation.object_validation import ObjectValidation

from tests.support.tables import table

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
SPREAD = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule"


def problems(text: str, base: dict[str, Any] = POD) -> list[str]:
    """Validate a copy of an object to which a field is added; the text is YAML of one field with its path."""
    path, _, value = text.partition(": ")
    body = copy.deepcopy(base)
    *parents, name = path.split(".")
    place: Any = body
    for each in parents:
        place = place[int(each)] if isinstance(place, list) else place.setdefault(each, {})
    place[name] = yaml.safe_load(value)
    return [str(each) for each in ObjectValidation().problems(body)]


@table(
    "text, found",
    ("unknown-field", "spec.toleration: []", "spec.toleration: unknown field"),
    ("case", "spec.NodeName: n", 'spec.NodeName: unknown field; remove it or correct its name (did you mean "no'),
    ("number", "metadata.labels: {app: 1}", "metadata.labels[app]: must be text, not 1; put it in quotes"),
    ("bool", "spec.nodeSelector: {a: true}", "spec.nodeSelector[a]: must be text, not true; put it in quotes"),
    ("text", "spec.priority: '5'", 'spec.priority: must be a whole number, not "5"; remove the quotes'),
    ("range", "spec.priority: 3000000000", "spec.priority: must be a whole number of 32 bits"),
    ("no-list", "spec.containers: {name: c}", "spec.containers: must be a list, not a mapping"),
    ("no-containers", "spec.containers: []", "spec.containers: Required value"),
    ("name", "spec.containers: [{name: C, image: x}]", 'spec.containers[0].name: Invalid value: "C"'),
    ("negative", "spec.overhead: {cpu: '-1'}", "spec.overhead.limits[cpu]: Invalid value"),
    ("quantity", "spec.overhead: {cpu: lots}", "spec.overhead[cpu]: must be an amount such as 2, 500m"),
    ("policy", "spec.preemptionPolicy: never", 'spec.preemptionPolicy: Unsupported value: "never"'),
    (
        "max-skew",
        f"spec.topologySpreadConstraints: [{{{SPREAD.replace('1', '0')}}}]",
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    ),
    ("spread-twice", f"spec.topologySpreadConstraints: [{{{SPREAD}}}, {{{SPREAD}}}]", "Duplicate value"),
    (
        "min-domains",
        f"spec.topologySpreadConstraints: [{{minDomains: 2, {SPREAD.replace('DoNotSchedule', 'ScheduleAnyway')}}}]",
        "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
    ),
    ("toleration", "spec.tolerations: [{operator: Equal}]", "operator must be Exists when `key` is empty"),
    ("gate-twice", "spec.schedulingGates: [{name: a}, {name: a}]", "Duplicate value"),
    ("volume", "spec.volumes: [{name: v, secret: {}}]", "spec.volumes[0].secret.secretName: Required"),
    (
        "request-above-limit",
        "spec.containers.0.resources: {requests: {cpu: 2}, limits: {cpu: 1}}",
        "spec.containers[0].resources.requests[cpu]: Invalid value: 2: must be less than or equal to cpu",
    ),
    ("mount-of-no-volume", "spec.containers.0.volumeMounts: [{name: v, mountPath: /a}]", 'Not found: "v"'),
    ("port", "spec.containers.0.ports: [{containerPort: 70000}]", "between 1 and 65535"),
    ("no-boolean", "spec.hostUsers: 'false'", "spec.hostUsers: must be true or false"),
    ("time", "metadata.creationTimestamp: today", "must be a time such as"),
    ("object-name", "metadata.name: A", "metadata.name: Invalid value"),
)
def test_a_pod_that_the_api_server_rejects(text: str, found: str) -> None:
    """The problem has a field path, the API server's words and a remedy."""
    (problem, *others) = problems(text)
    assert found in problem
    assert not others


@table(
    "text",
    ("null", "spec.nodeSelector: null"),
    ("integral-float", "spec.priority: 5.0"),
    ("quantity-as-number", "spec.containers.0.resources: {requests: {cpu: 0.5, memory: 1e9}}"),
    ("privileged", "spec.containers.0.securityContext: {privileged: true}"),
    ("empty-dir-by-default", "spec.volumes: [{name: v}]"),
    ("status", "status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}"),
)
def test_a_pod_that_the_api_server_accepts(text: str) -> None:
    """Null means not set, and what has a default may be missing."""
    assert problems(text) == []


def test_all_problems_are_found_together() -> None:
    """Structure and rules are validated in one step, and one cause is one problem."""
    body = copy.deepcopy(POD)
    body["spec"] |= {"containers": "x", "toleration": [], "preemptionPolicy": "never", "restartPolicy": "always"}
    assert [each.path for each in ObjectValidation().problems(body)] == [
        "spec.containers",
        "spec.toleration",
        "spec.restartPolicy",
        "spec.preemptionPolicy",
    ]


@table(
    "text, found",
    ("effect", "spec.taints: [{key: a, effect: noschedule}]", 'Unsupported value: "noschedule"'),
    ("no-effect", "spec.taints: [{key: a}]", "spec.taints[0].effect: Required value"),
    ("allocatable", "status.allocatable: {cpu: '-1'}", "must be greater than or equal to 0"),
    ("fraction", "status.capacity: {pods: 1.5}", "must be an integer"),
)
def test_a_node_that_the_api_server_rejects(text: str, found: str) -> None:
    """Nodes have rules for taints and amounts."""
    assert found in problems(text, NODE)[0]


def test_what_only_an_update_sets_is_accepted_of_a_stored_pod() -> None:
    """A pod with a UID was read from an API server and may have ephemeral containers; a written one may not."""
    written = copy.deepcopy(POD)
    written["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "x"}]
    stored = {**written, "metadata": {"name": "p", "uid": "u"}}
    assert ObjectValidation().problems(written) != ()
    assert ObjectValidation().problems(stored) == ()


def test_rules_run_once_for_equal_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of one template on different nodes are validated once, but their names and nodes are validated always."""
    calls = []
    rule = object_validation._RULES["Pod"]

    def counted(pod: Fields) -> None:
        calls.append(pod)
        rule(pod)

    monkeypatch.setattr(object_validation, "_RULES", {**object_validation._RULES, "Pod": counted})
    validation = ObjectValidation()
    pods = [{**POD, "metadata": {"name": f"p{n}"}, "spec": {**POD["spec"], "nodeName": f"n{n}"}} for n in range(50)]
    assert [validation.problems(each) for each in pods] == [()] * 50
    assert len(calls) == 1
    assert validation.problems({**pods[0], "metadata": {"name": "P"}}) != ()
    assert validation.problems({**pods[0], "spec": {**POD["spec"], "nodeName": "N"}}) != ()


def test_the_cache_of_valid_specs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound of two specs, every valid pod stays valid."""
    monkeypatch.setattr(object_validation, "_MAX_KNOWN", 2)
    validation = ObjectValidation()
    for number in (1, 2, 3, 1, 2, 3):
        pod = {**POD, "spec": {**POD["spec"], "priority": number}}
        assert validation.problems(pod) == ()
        assert len(validation._valid_specs) <= 2
