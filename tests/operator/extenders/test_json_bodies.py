"""Tests of request bodies in kube-scheduler's format, and of responses decoded like in Go."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from bayplan.extenders import json_bodies

from scheduler_core.ports import Binding

POD = b'{"metadata":{"name":"p"},"status":{}}'
POD_JSON = json.loads(POD)

BODIES = [
    pytest.param(
        json_bodies.names_body(POD, ["a", "b"]), {"Pod": POD_JSON, "Nodes": None, "NodeNames": ["a", "b"]}, id="names"
    ),
    pytest.param(
        json_bodies.nodes_body(POD, [b'{"metadata":{"name":"a"}}']),
        {"Pod": POD_JSON, "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "a"}}]}, "NodeNames": None},
        id="nodes",
    ),
    pytest.param(
        json_bodies.nodes_body(POD, []),
        {"Pod": POD_JSON, "Nodes": {"metadata": {}, "items": None}, "NodeNames": None},
        id="no-nodes",
    ),
    pytest.param(
        json_bodies.uid_victims_body(POD, {"n": json_bodies.SentVictims(["u1"], 1)}),
        {
            "Pod": POD_JSON,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}},
        },
        id="victims-by-uid",
    ),
    pytest.param(
        json_bodies.victims_body(POD, {"n": json_bodies.SentVictims([POD], 0)}),
        {
            "Pod": POD_JSON,
            "NodeNameToVictims": {"n": {"Pods": [POD_JSON], "NumPDBViolations": 0}},
            "NodeNameToMetaVictims": None,
        },
        id="victims",
    ),
    pytest.param(
        json_bodies.binding_body(Binding("ns", "p", "u", "n")),
        {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"},
        id="binding",
    ),
]


@pytest.mark.parametrize(("body", "expected"), BODIES)
def test_bodies(body: bytes, expected: Any) -> None:
    """Every field of the reference's types is present, and null if it is not set."""
    assert json.loads(body) == expected


NODES = [
    pytest.param({"spec": {"nodeName": "a", "x": 1}}, {"spec": {"nodeName": "a", "x": 1}}, id="bound"),
    pytest.param({"spec": {"x": 1}, "y": 2}, {"spec": {"nodeName": "n", "x": 1}, "y": 2}, id="being-bound"),
    pytest.param({"y": 2}, {"spec": {"nodeName": "n"}, "y": 2}, id="no-spec"),
]


@pytest.mark.parametrize(("pod", "expected"), NODES)
def test_a_victim_has_its_node(pod: Any, expected: Any) -> None:
    """The JSON of a victim has its node, also before its bind is confirmed."""
    assert json.loads(json_bodies.on_node(json.dumps(pod).encode(), "n")) == expected


FILTER_RESPONSES = [
    pytest.param("{}", json_bodies.FilterResponse(), id="empty"),
    pytest.param("null", json_bodies.FilterResponse(), id="null"),
    pytest.param('{"NodeNames":["a"]}', json_bodies.FilterResponse(node_names=("a",)), id="names"),
    pytest.param(
        '{"nodenames":["a"],"error":"e"}', json_bodies.FilterResponse(("a",), error="e"), id="lower-case-names"
    ),
    pytest.param('{"NodeNames":[]}', json_bodies.FilterResponse(node_names=()), id="no-names"),
    pytest.param('{"NodeNames":null,"Error":null,"X":1}', json_bodies.FilterResponse(), id="nulls-and-unknown"),
    pytest.param(
        '{"Nodes":{"items":[{"metadata":{"name":"a","labels":{}},"spec":{"x":1}},{"Metadata":{"Name":"b"}}]}}',
        json_bodies.FilterResponse(nodes=("a", "b")),
        id="nodes",
    ),
    pytest.param('{"Nodes":{"items":null}}', json_bodies.FilterResponse(nodes=()), id="null-items"),
    pytest.param(
        '{"FailedNodes":{"a":"full"},"failedAndUnresolvableNodes":{"b":"never"}}',
        json_bodies.FilterResponse(failed={"a": "full"}, unresolvable={"b": "never"}),
        id="failed",
    ),
]


@pytest.mark.parametrize(("text", "expected"), FILTER_RESPONSES)
def test_filter_responses(text: str, expected: json_bodies.FilterResponse) -> None:
    """Field names are matched in any case, and unknown fields are ignored."""
    assert json_bodies.read_filter(text.encode()) == expected


SCORES = [
    pytest.param("null", {}, id="null"),
    pytest.param('[{"Host":"a","Score":3},{"host":"b","score":-1}]', {"a": 3, "b": -1}, id="both-cases"),
    pytest.param('[{"Host":"a","Score":3},{"Host":"a","Score":4}]', {"a": 7}, id="repeated-host"),
    pytest.param('[{"Host":"a"}]', {"a": 0}, id="no-score"),
]


@pytest.mark.parametrize(("text", "expected"), SCORES)
def test_scores(text: str, expected: dict[str, int]) -> None:
    """Scores are returned by host, and scores of a repeated host are added, as in the reference."""
    assert json_bodies.read_scores(text.encode()) == expected


def test_victims() -> None:
    """Victims are returned by node, in order, with their violations."""
    body = b'{"nodeNameToMetaVictims":{"n":{"Pods":[{"UID":"b"},{"uid":"a"}],"numPDBViolations":2},"m":{"pods":null}}}'
    chosen = json_bodies.ChosenVictims
    assert json_bodies.read_victims(body) == {"n": chosen(("b", "a"), 2), "m": chosen((), 0)}
    assert json_bodies.read_victims(b"{}") == {}


def test_binding_errors() -> None:
    """The error is found in any case of its field name."""
    assert json_bodies.read_binding_error(b'{"error":"taken"}') == "taken"
    assert json_bodies.read_binding_error(b"{}") == ""


UNREADABLE = [
    pytest.param("", id="empty"),
    pytest.param("<html>", id="html"),
    pytest.param("[]", id="list"),
    pytest.param('{"NodeNames":"a"}', id="names-not-a-list"),
    pytest.param('{"NodeNames":[1]}', id="name-not-a-string"),
    pytest.param('{"Nodes":{"items":[{"metadata":5}]}}', id="metadata-not-an-object"),
    pytest.param('{"Error":["x"]}', id="error-not-a-string"),
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_unreadable_responses(text: str) -> None:
    """An unreadable response is an error and not an empty result."""
    with pytest.raises(msgspec.DecodeError):
        json_bodies.read_filter(text.encode())


BAD_SCORES = [pytest.param('[{"Score":1.5}]', id="fraction"), pytest.param(f'[{{"Score":{2**63}}}]', id="too-large")]


@pytest.mark.parametrize("text", BAD_SCORES)
def test_scores_are_integers_of_64_bits(text: str) -> None:
    """A score that is not a 64-bit integer is an error, as in the reference."""
    with pytest.raises(msgspec.DecodeError):
        json_bodies.read_scores(text.encode())
