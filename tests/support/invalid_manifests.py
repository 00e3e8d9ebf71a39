"""Invalid manifests, and the errors of the API server and of the models for each.

One table serves both: the API server must reject nothing that the models accept, and files that never reach an API
server should get the same errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class InvalidManifest:
    """Invalid object.

    Attributes:
        spec: Spec of the object; None for no spec.
        server: Field in the API server's error, and a part of its message.
        model: Field path of each problem that the models report; where the API server names a list, they may name the
            entry. None if only the API server rejects the object, because of server-side apply.
    """

    kind: str
    spec: Manifest | None
    server: tuple[str, str]
    model: tuple[str, ...] | None
    name: str = "refused"

    def manifest(self) -> Manifest:
        body = {"apiVersion": "bayplan.dev/v1alpha1", "kind": self.kind, "metadata": {"name": self.name}}
        return body if self.spec is None else {**body, "spec": self.spec}


def _profile(spec: Manifest | None, field: str, words: str, *model: str) -> InvalidManifest:
    return InvalidManifest("SchedulerProfile", spec, (field, words), model or (field,))


def _group(spec: Manifest, field: str, words: str, *model: str) -> InvalidManifest:
    return InvalidManifest("PodGroup", {"minMember": 2, **spec}, (field, words), model or (field,))


def _extenders(*each: Manifest) -> Manifest:
    return {"extenders": [{"urlPrefix": "http://extender", **fields} for fields in each]}


def _managing(*names: str) -> Manifest:
    return {"managedResources": [{"name": name} for name in names]}


def _foreign(resource: str) -> InvalidManifest:
    path = "spec.extenders[0].managedResources[0].name"
    return _profile(_extenders(_managing(resource)), path, 'must be an extended resource such as "example.com/foo"')


def _enabled(point: str, *entries: Manifest) -> Manifest:
    return {"plugins": {point: {"enabled": list(entries)}}}


_A, _B = {"name": "a"}, {"name": "b"}
_SCORE = "spec.plugins.score.enabled"
_TLS = "spec.extenders[0].tlsConfig"

INVALID_MANIFESTS = [
    pytest.param(_profile(None, "spec", "Required value"), id="no-spec"),
    pytest.param(_profile({"pluginss": {}}, "spec.pluginss", "unknown field"), id="unknown-field"),
    pytest.param(_profile(_enabled("scores", _A), "spec.plugins.scores", "unknown field"), id="unknown-point"),
    pytest.param(
        _profile(_enabled("score", {"name": "a", "weight": -1}), f"{_SCORE}[0].weight", "greater than or equal to 0"),
        id="weight-negative",
    ),
    pytest.param(
        _profile(_enabled("score", {"name": "a", "weight": "2"}), f"{_SCORE}[0].weight", "must be of type integer"),
        id="weight-string",
    ),
    pytest.param(
        _profile(_enabled("score", {"name": "a", "weight": 2**31}), f"{_SCORE}[0].weight", "2147483647"),
        id="weight-beyond-32-bits",
    ),
    pytest.param(_profile(_enabled("score", {"weight": 1}), f"{_SCORE}[0].name", "Required value"), id="no-name"),
    pytest.param(
        _profile(_enabled("score", {"name": "*"}), _SCORE, '"*" is only allowed in disabled', f"{_SCORE}[0].name"),
        id="all-enabled",
    ),
    pytest.param(
        _profile(_enabled("score", _A, _B, _A), _SCORE, "may be enabled only once", f"{_SCORE}[2].name"),
        id="enabled-twice",
    ),
    pytest.param(
        _profile(
            _enabled("queueSort", _A, _B),
            "spec.plugins.queueSort",
            "only one plugin can order the queue",
            "spec.plugins.queueSort.enabled[1]",
        ),
        id="two-queue-sorts",
    ),
    pytest.param(
        InvalidManifest(
            "SchedulerProfile",
            {"plugins": {"filter": {"disabled": [_A, _A]}}},
            ("spec.plugins.filter.disabled[1]", "Duplicate value"),
            None,
        ),
        id="disabled-twice",
    ),
    pytest.param(
        _profile(
            {"podInitialBackoffSeconds": 9, "podMaxBackoffSeconds": 8},
            "spec.podMaxBackoffSeconds",
            "must be at least podInitialBackoffSeconds",
        ),
        id="max-backoff-below-initial",
    ),
    pytest.param(
        _profile({"podInitialBackoffSeconds": 0}, "spec.podInitialBackoffSeconds", "greater than or equal to 1"),
        id="no-backoff",
    ),
    pytest.param(_profile({"schedulerName": ""}, "spec.schedulerName", "at least 1 chars"), id="empty-scheduler-name"),
    pytest.param(
        _profile({"percentageOfNodesToScore": 101}, "spec.percentageOfNodesToScore", "less than or equal to 100"),
        id="percentage-101",
    ),
    pytest.param(
        _profile({"percentageOfNodesToScore": "50"}, "spec.percentageOfNodesToScore", "must be of type integer"),
        id="percentage-string",
    ),
    pytest.param(
        _profile({"pluginConfig": [_A, _A]}, "spec.pluginConfig[1]", "Duplicate value", "spec.pluginConfig[1].name"),
        id="configured-twice",
    ),
    pytest.param(
        _profile({"pluginConfig": [{"name": "a", "args": [1]}]}, "spec.pluginConfig[0].args", "must be of type object"),
        id="args-list",
    ),
    pytest.param(
        _profile(
            {"pluginConfigRefs": [_A, _A]}, "spec.pluginConfigRefs[1]", "Duplicate", "spec.pluginConfigRefs[1].name"
        ),
        id="referred-to-twice",
    ),
    pytest.param(
        _profile({"extenders": [{"filterVerb": "f"}]}, "spec.extenders[0].urlPrefix", "Required"), id="no-url"
    ),
    pytest.param(
        _profile(
            _extenders({"prioritizeVerb": "p"}), "spec.extenders[0].weight", "must be at least 1 with prioritizeVerb"
        ),
        id="scoring-without-weight",
    ),
    pytest.param(
        _profile(
            _extenders({"bindVerb": "b"}, {"bindVerb": "b"}),
            "spec.extenders",
            "only one extender may have a bindVerb",
            "spec.extenders[1].bindVerb",
        ),
        id="two-extenders-that-bind",
    ),
    pytest.param(
        _profile(
            _extenders(_managing("a.com/x"), _managing("a.com/x")),
            "spec.extenders",
            "a resource may be managed by one extender only",
            "spec.extenders[1].managedResources[0].name",
        ),
        id="resource-of-two-extenders",
    ),
    pytest.param(
        _profile(
            _extenders(_managing("a.com/x", "a.com/x")),
            "spec.extenders[0].managedResources[1]",
            "Duplicate value",
            "spec.extenders[0].managedResources[1].name",
        ),
        id="resource-twice",
    ),
    pytest.param(_foreign("cpu"), id="resource-of-kubernetes"),
    pytest.param(_foreign("pods.kubernetes.io/x"), id="resource-of-kubernetes-by-prefix"),
    pytest.param(_foreign("requests.example.com/x"), id="resource-of-a-quota"),
    pytest.param(_foreign("Example.com/x"), id="resource-in-upper-case"),
    pytest.param(_foreign(f"{'a.' * 122}ab/x"), id="resource-too-long-for-a-quota"),
    pytest.param(
        _profile(
            _extenders({"httpTimeout": "5sec"}), "spec.extenders[0].httpTimeout", 'must be a duration, such as "5s"'
        ),
        id="timeout-unit",
    ),
    pytest.param(
        _profile(_extenders({"httpTimeout": 5}), "spec.extenders[0].httpTimeout", "must be of type string"),
        id="timeout-number",
    ),
    pytest.param(
        _profile(
            _extenders({"tlsConfig": {"insecure": True, "caFile": "/ca"}}),
            f"{_TLS}.insecure",
            "cannot be true together",
        ),
        id="insecure-with-authority",
    ),
    pytest.param(
        _profile(
            _extenders({"tlsConfig": {"certFile": "/c"}}), _TLS, "a client certificate and its key must be set together"
        ),
        id="no-key",
    ),
    pytest.param(
        _profile(_extenders({"tlsConfig": {"caData": "%%"}}), f"{_TLS}.caData", "must be of type byte"), id="no-base64"
    ),
    pytest.param(
        InvalidManifest("PluginConfig", {"args": {}}, ("spec.plugin", "Required value"), ("spec.plugin",)),
        id="no-plugin",
    ),
    pytest.param(
        InvalidManifest("PluginConfig", {"plugin": "a", "args": "x"}, ("spec.args", "of type object"), ("spec.args",)),
        id="args-string",
    ),
    pytest.param(
        InvalidManifest("PluginConfig", {"plugin": "a", "arg": {}}, ("spec.arg", "unknown field"), ("spec.arg",)),
        id="arg",
    ),
    pytest.param(_group({"minMember": 0}, "spec.minMember", "greater than or equal to 1"), id="min-member-0"),
    pytest.param(_group({"minMembers": 2}, "spec.minMembers", "unknown field"), id="min-members"),
    pytest.param(
        InvalidManifest("PodGroup", {}, ("spec.minMember", "Required value"), ("spec.minMember",)),
        id="min-member-absent",
    ),
    pytest.param(_group({"topology": {}}, "spec.topology.key", "Required value"), id="topology-without-key"),
    pytest.param(
        _group({"topology": {"key": "a b"}}, "spec.topology.key", "must be the key of a node label"), id="topology-key"
    ),
    pytest.param(
        _group({"topology": {"key": "a..b/zone"}}, "spec.topology.key", "must be the key of a node label"),
        id="topology-key-with-a-bad-prefix",
    ),
    pytest.param(
        _group({"topology": {"key": f"{'a' * 254}/zone"}}, "spec.topology.key", "must be the key of a node label"),
        id="topology-key-with-a-long-prefix",
    ),
    pytest.param(
        _group({"topology": {"key": "a", "mode": "Hard"}}, "spec.topology.mode", '"Required", "Preferred"'), id="mode"
    ),
    pytest.param(
        _group(
            {"topology": {"key": "a", "levels": ["b", "c d"]}},
            "spec.topology.levels[1]",
            "must be the key of a node label",
        ),
        id="topology-level",
    ),
    pytest.param(
        _group(
            {"topology": {"key": "a", "levels": ["b", "b"]}},
            "spec.topology.levels",
            "each label may occur only once",
            "spec.topology.levels[1]",
        ),
        id="topology-level-repeated",
    ),
    pytest.param(
        _group(
            {"topology": {"key": "a", "levels": ["a"]}},
            "spec.topology.levels",
            "each label may occur only once",
            "spec.topology.levels[0]",
        ),
        id="topology-level-is-key",
    ),
    pytest.param(
        _group(
            {"topology": {"key": "a", "levels": list("bcdefghij")}},
            "spec.topology.levels",
            "must have at most 8",
        ),
        id="topology-levels-9",
    ),
    pytest.param(_group({"disruption": "None"}, "spec.disruption", '"Pod", "Group"'), id="disruption"),
    pytest.param(_group({"queueing": "Fifo"}, "spec.queueing", '"Strict", "BestEffort"'), id="queueing"),
    pytest.param(
        _group({"scheduleTimeoutSeconds": 0}, "spec.scheduleTimeoutSeconds", "greater than or equal to 1"),
        id="timeout-0",
    ),
    pytest.param(
        _group({"priorityClassName": "Big_One"}, "spec.priorityClassName", "the name of a PriorityClass"), id="class"
    ),
    pytest.param(
        _group({"minResources": {"cpu": "4 cores"}}, "spec.minResources[cpu]", "an amount", "spec.minResources.cpu"),
        id="amount-with-unit",
    ),
    pytest.param(
        _group({"minResources": {"cpu": "-1"}}, "spec.minResources[cpu]", "an amount", "spec.minResources.cpu"),
        id="amount-negative",
    ),
    pytest.param(
        _group({"minResources": {"cpu": -1}}, "spec.minResources[cpu]", "an amount", "spec.minResources.cpu"),
        id="number-negative",
    ),
    pytest.param(
        InvalidManifest(
            "PodGroup", {"minMember": 1}, ("metadata", "at most 63 characters"), ("metadata.name",), name="g" * 64
        ),
        id="name-longer-than-a-label",
    ),
]
