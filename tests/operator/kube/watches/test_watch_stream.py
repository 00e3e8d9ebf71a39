"""Tests of LineSplitter and ObjectDecoder, which split and decode the bytes of a watch."""

from __future__ import annotations

import json
import logging

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
    WatchOutages,
)
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import ForbiddenError, ServerUnavailableError
from scheduler_core.model.pod import Pod
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

DECODER = ObjectDecoder(Pod)


@given(lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8), cuts=st.data())
def test_lines_do_not_depend_on_chunks(lines: list[bytes], cuts: st.DataObject) -> None:
    """The lines do not depend on where the bytes are cut into chunks."""
    text = b"".join(line + b"\n" for line in lines)
    at = sorted(cuts.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    chunks = [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]
    splitter = LineSplitter()
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == [line for line in lines if line]


@table(
    "line, expected",
    (
        "bookmark",
        b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}',
        Bookmark("7", ends_list=False),
    ),
    (
        "end-of-list",
        (
            b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":'
            b'{"k8s.io/initial-events-end":"true"}}}}'
        ),
        Bookmark("7", ends_list=True),
    ),
)
def test_bookmarks(line: bytes, expected: Bookmark) -> None:
    """A bookmark has a version and can mark the end of the initial events."""
    assert DECODER.line(line) == expected


@table(
    "line",
    ("as-the-server-writes-it", b'{"type":"MODIFIED","object":{"metadata":{"name":"a"}}}'),
    ("in-another-order", b'{ "object": {"metadata":{"name":"a"}}, "type": "MODIFIED" }'),
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


@table(
    "line, error",
    ("410", b'{"type":"ERROR","object":{"code":410,"message":"old"}}', ResourceExpiredError),
    ("500", b'{"type":"ERROR","object":{"code":500,"message":"oh"}}', StreamEndedError),
    ("cut-off", b'{"type":"ADDED","object":{"meta', MalformedStreamError),
    ("not-json", b"<html>", MalformedStreamError),
    ("not-an-object", b'{"type":"ADDED","object":3}', MalformedStreamError),
)
def test_lines_that_end_the_watch(line: bytes, error: type[Exception]) -> None:
    """Errors of the server and invalid JSON end the watch."""
    with pytest.raises(error):
        DECODER.line(line)


AWAY = ServerUnavailableError("away")


@pytest.fixture
def outages(caplog: pytest.LogCaptureFixture) -> WatchOutages:
    caplog.set_level(logging.INFO)
    return WatchOutages(VirtualClock())


def test_an_outage_is_logged_once(outages: WatchOutages, caplog: pytest.LogCaptureFixture) -> None:
    """Fifteen watches that fail for one reason are logged once at the start and once at the end of the outage."""
    paths = [f"/api/v1/kind{number}" for number in range(15)]
    for _ in range(3):
        for path in paths:
            outages.broke(path, AWAY)
    for path in paths:
        outages.opened(path)
    assert caplog.messages == [
        "Watch of /api/v1/kind0 failed, retrying: away",
        "Watches that had failed: 15. All are open again after 0.0 s, 45 attempts",
    ]


def test_the_next_outage_is_logged_again(outages: WatchOutages, caplog: pytest.LogCaptureFixture) -> None:
    """The outage after one that has ended is logged too."""
    for _ in range(2):
        outages.broke("/api/v1/pods", AWAY)
        outages.opened("/api/v1/pods")
    assert len(caplog.messages) == 4


def test_a_missing_right_is_logged_for_each_resource(outages: WatchOutages, caplog: pytest.LogCaptureFixture) -> None:
    """A missing right is logged once for each resource, also while the server is unreachable."""
    outages.broke("/api/v1/nodes", AWAY)
    for _ in range(2):
        for path in ("/api/v1/pods", "/api/v1/services"):
            outages.broke(path, ForbiddenError("no"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "ERROR"]


def test_an_expired_version_is_not_logged(outages: WatchOutages, caplog: pytest.LogCaptureFixture) -> None:
    """An expired version is not logged as a failure, because the watch starts over with a list."""
    outages.broke("/api/v1/pods", ResourceExpiredError("too old"))
    outages.opened("/api/v1/pods")
    assert caplog.messages == []
