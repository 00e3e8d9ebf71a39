"""Tests of LineSplitter and ObjectDecoder, which split and decode the bytes of a watch."""

from __future__ import annotations

import json

import pytest
from bayplan.kube.http.api_request import ResourceExpiredError
from bayplan.kube.watches.watch_stream import (
    Bookmark,
    LineSplitter,
    MalformedStreamError,
    ObjectDecoder,
    StreamEndedError,
    Undecodable,
    WatchEvent,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from scheduler_core.model.pod import Pod

DECODER = ObjectDecoder(Pod)


@given(lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8), cuts=st.data())
def test_lines_do_not_depend_on_chunks(lines: list[bytes], cuts: st.DataObject) -> None:
    """The lines do not depend on where the bytes are cut into chunks."""
    text = b"".join(line + b"\n" for line in lines)
    at = sorted(cuts.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    chunks = [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]
    splitter = LineSplitter()
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == [line for line in lines if line]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}',
            Bookmark("7", ends_list=False),
            id="bookmark",
        ),
        pytest.param(
            b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":'
            b'{"k8s.io/initial-events-end":"true"}}}}',
            Bookmark("7", ends_list=True),
            id="end-of-list",
        ),
    ],
)
def test_bookmarks(line: bytes, expected: Bookmark) -> None:
    """A bookmark has a version and can mark the end of the initial events."""
    assert DECODER.line(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"MODIFIED","object":{"metadata":{"name":"a"}}}', id="as-the-server-writes-it"),
        pytest.param(b'{ "object": {"metadata":{"name":"a"}}, "type": "MODIFIED" }', id="in-another-order"),
    ],
)
def test_objects(line: bytes) -> None:
    """An event is decoded whatever the layout of its JSON."""
    event = DECODER.line(line)
    assert isinstance(event, WatchEvent)
    assert (event.type, event.object.metadata.name) == ("MODIFIED", "a")


def test_an_undecodable_object_has_its_identity() -> None:
    """An object that cannot be decoded is returned with its identity and a reason."""
    pod = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "3"}, "spec": {"priority": "x"}}
    event = DECODER.line(json.dumps({"type": "ADDED", "object": pod}, separators=(",", ":")).encode())
    assert isinstance(event, Undecodable)
    assert (event.metadata.name, event.metadata.resource_version) == ("a", "3")
    assert "priority" in event.reason


def test_an_undecodable_list_item_has_its_identity() -> None:
    """A list item that cannot be decoded is returned with its identity."""
    event = DECODER.listed(Raw(b'{"metadata":{"name":"a"},"spec":{"priority":"x"}}'))
    assert isinstance(event, Undecodable)
    assert event.metadata.name == "a"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        pytest.param(b'{"type":"ERROR","object":{"code":410,"message":"old"}}', ResourceExpiredError, id="410"),
        pytest.param(b'{"type":"ERROR","object":{"code":500,"message":"oh"}}', StreamEndedError, id="500"),
        pytest.param(b'{"type":"ADDED","object":{"meta', MalformedStreamError, id="cut-off"),
        pytest.param(b"<html>", MalformedStreamError, id="not-json"),
        pytest.param(b'{"type":"ADDED","object":3}', MalformedStreamError, id="not-an-object"),
    ],
)
def test_lines_that_end_the_watch(line: bytes, error: type[Exception]) -> None:
    """Errors of the server and invalid JSON end the watch."""
    with pytest.raises(error):
        DECODER.line(line)
