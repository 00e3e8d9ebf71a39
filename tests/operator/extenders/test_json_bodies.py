"""Tests of request bodies in kube-scheduler's format, and of responses decoded like in Go."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from bayplan.extenders import json_bodies

from scheduler_core.ports import Binding
from tests.support.tables import table

POD = b'{"metadata":{"name":"p"},"status":{}}'
POD_JSON = json.loads(POD)


@table(
    "body, expected",
    ("names", json_bodies.names_body(POD, ["a", "b"]), {"Pod": POD_JSON, "Nodes": None, "NodeNames": ["a", "b"]}),
    (
        "nodes",
        json_bodies.nodes_body(POD, [b'{"metadata":{"name":"a"}}']),
        {"Pod": POD_JSON, "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "a"}}]}, "NodeNames": None},
    ),
    (
        "no-nodes",
        json_bodies.nodes_body(POD, []),
        {"Pod": POD_JSON, "Nodes": {"metadata": {}, "items": None}, "NodeNames": None},
    ),
    (
        "victims-by-uid",
        json_bodies.uid_victims_body(POD, {"n": json_bodies.SentVictims(["u1"], 1)}),
        {
            "Pod": POD_JSON,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 1}},
        },
    ),
    (
        "victims",
        json_bodies.victims_body(POD, {"n": json_bodies.SentVictims([POD], 0)}),
        {
            "Pod": POD_JSON,
            "NodeNameToVictims": {"n": {"Pods": [POD_JSON], "NumPDBViolations": 0}},
            "NodeNameToMetaVictims": None,
        },
    ),
    (
        "binding",
        json_bodies.binding_body(Binding("ns", "p", "u", "n")),
        {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n"},
    ),
)
def test_bodies(body: bytes, expected: Any) -> None:
    """Every field of the reference's types is present, and null if it is not set."""
    assert json.loads(body) == expected


@table(
    "pod, expected",
    ("bound", {"spec": {"nodeName": "a", "x": 1}}, {"spec": {"nodeName": "a", "x": 1}}),
    ("being-bound", {"spec": {"x": 1}, "y": 2}, {"spec": {"nodeName": "n", "x": 1}, "y": 2}),
    ("no-spec", {"y": 2}, {"spec": {"nodeName": "n"}, "y": 2}),
)
def test_a_victim_has_its_node(pod: Any, expected: Any) -> None:
    """The JSON of a victim has its node, also before its bind is confirmed."""
    assert json.loads(json_bodies.on_node(json.dumps(pod).encode(), "n")) == expected


@table(
    "text, expected",
    ("empty", "{}", json_bodies.FilterResponse()),
    ("null", "null", json_bodies.FilterResponse()),
    ("names", '{"NodeNames":["a"]}', json_bodies.FilterResponse(node_names=("a",))),
    ("lower-case-names", '{"nodenames":["a"],"error":"e"}', json_bodies.FilterResponse(("a",), error="e")),
    ("no-names", '{"NodeNames":[]}', json_bodies.FilterResponse(node_names=())),
    ("nulls-and-unknown", '{"NodeNames":null,"Error":null,"X":1}', json_bodies.FilterResponse()),
    (
        "nodes",
        '{"Nodes":{"items":[{"metadata":{"name":"a","labels":{}},"spec":{"x":1}},{"Metadata":{"Name":"b"}}]}}',
        json_bodies.FilterResponse(nodes=("a", "b")),
    ),
    ("null-items", '{"Nodes":{"items":null}}', json_bodies.FilterResponse(nodes=())),
    (
        "failed",
        '{"FailedNodes":{"a":"full"},"failedAndUnresolvableNodes":{"b":"never"}}',
        json_bodies.FilterResponse(failed={"a": "full"}, unresolvable={"b": "never"}),
    ),
)
def test_filter_responses(text: str, expected: json_bodies.FilterResponse) -> None:
    """Field names are matched in any case, and unknown fields are ignored."""
    assert json_bodies.read_filter(text.encode()) == expected


@table(
    "text, expected",
    ("null", "null", {}),
    ("both-cases", '[{"Host":"a","Score":3},{"host":"b","score":-1}]', {"a": 3, "b": -1}),
    ("repeated-host", '[{"Host":"a","Score":3},{"Host":"a","Score":4}]', {"a": 7}),
    ("no-score", '[{"Host":"a"}]', {"a": 0}),
)
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


@table(
    "text",
    ("empty", ""),
    ("html", "<html>"),
    ("list", "[]"),
    ("names-not-a-list", '{"NodeNames":"a"}'),
    ("name-not-a-string", '{"NodeNames":[1]}'),
    ("metadata-not-an-object", '{"Nodes":{"items":[{"metadata":5}]}}'),
    ("error-not-a-string", '{"Error":["x"]}'),
)
def test_unreadable_responses(text: str) -> None:
    """An unreadable response is an error and not an empty result."""
    with pytest.raises(msgspec.DecodeError):
        json_bodies.read_filter(text.encode())


@table("text", ("fraction", '[{"Score":1.5}]'), ("too-large", f'[{{"Score":{2**63}}}]'))
def test_scores_are_integers_of_64_bits(text: str) -> None:
    """A score that is not a 64-bit integer is an error, as in the reference."""
    with pytest.raises(msgspec.DecodeError):
        json_bodies.read_scores(text.encode())
