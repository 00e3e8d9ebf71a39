"""Tests of JSON that is nested deeper than Python's decoders allow."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from bayplan.kube.http.deep_json import MAX_DEPTH, shallow
from bayplan.kube.watches.watch_stream import ObjectDecoder, WatchEvent
from bayplan.profiles.kopf_handlers import KopfOperator

from scheduler_core.model.pod import Pod
from tests.support.fake_api import FakeApi, Response, Stream
from tests.support.tables import table

DEEPEST = 10_000
"""Levels that the API server's own decoder accepts."""


def nested(levels: int, innermost: str = "1") -> str:
    return '{"f:a":' * levels + innermost + "}" * levels


def depth_of(text: bytes) -> int:
    depth = deepest = 0
    for character in text.decode():
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(character, 0)
        deepest = max(deepest, depth)
    return deepest


def pod_json(managed_fields: str) -> str:
    return (
        '{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7",'
        f'"managedFields":[{{"fieldsV1":{managed_fields}}}]}},"spec":{{"schedulerName":"batch"}}}}'
    )


@table(
    "text",
    ("scalar", "null"),
    ("maximum depth", nested(MAX_DEPTH)),
    ("brackets in a string", json.dumps([{"a": "[{[{" * 200}])),
    ("escapes in a string", json.dumps(['\\"' * 200 + "[" * 200])),
    ("wide", "[" + ",".join("{}" for _ in range(500)) + "]"),
)
def test_shallow_json_is_unchanged(text: str) -> None:
    """JSON within the maximum depth is returned unchanged."""
    assert shallow(text.encode()) == text.encode()


@table(
    "text, expected",
    ("one level too many", nested(MAX_DEPTH + 1), nested(MAX_DEPTH, "null")),
    (
        "other values are unchanged",
        f'{{"before":1,"deep":{nested(DEEPEST - 1)},"after":"}}"}}',
        f'{{"before":1,"deep":{nested(MAX_DEPTH - 1, "null")},"after":"}}"}}',
    ),
    (
        "several",
        "[" * MAX_DEPTH + f"[1],2,{nested(300)}" + "]" * MAX_DEPTH,
        "[" * MAX_DEPTH + "null,2,null" + "]" * MAX_DEPTH,
    ),
)
def test_deep_values_are_null(text: str, expected: str) -> None:
    """Values nested deeper than the maximum depth become null; other values are unchanged."""
    assert shallow(text.encode()) == expected.encode()


@table(
    "text",
    ("never closed", "[" * 500),
    ("never opened", "]" * 500),
    ("string without an end", '"' + "[" * 500),
    ("backslashes without an end", '"' + "\\" * 100_001),
)
def test_invalid_json_stays_invalid(text: str) -> None:
    """Invalid JSON is still reported by a decoder."""
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(shallow(text.encode()))


def test_a_watch_delivers_a_deep_pod() -> None:
    """A watch delivers a pod with deeply nested managedFields, and its stored JSON is shallow."""
    line = f'{{"type":"ADDED","object":{pod_json(nested(DEEPEST - 5))}}}'.encode()
    decoder = ObjectDecoder(Pod)
    event = decoder.line(line)
    assert isinstance(event, WatchEvent)
    assert event.object.key == "shop/web"
    assert depth_of(bytes(decoder.raw(line))) < MAX_DEPTH


async def test_a_response_for_kopf_is_shallow() -> None:
    """A response for kopf has deep values replaced, in streamed lines and in whole documents."""
    lines = [f'{{"number":{number},"deep":{nested(5000)}}}' for number in range(3)]
    async with FakeApi() as api:
        api.on("GET", "/lines", Stream("\n".join(lines).encode() + b"\n"))
        api.on("GET", "/whole", Response(body=lines[0].encode()))
        async with KopfOperator(api, {}).session(None).aiohttp_session as session:
            async with session.get(f"{api.base_url}/lines") as response:
                chunks = [chunk async for chunk in response.content.iter_chunked(1000)]
            read: list[dict[str, Any]] = [json.loads(chunk) for chunk in chunks]
            async with session.get(f"{api.base_url}/whole") as response:
                document = await response.json()
    assert [one["number"] for one in read] == [0, 1, 2]
    assert document["number"] == 0
