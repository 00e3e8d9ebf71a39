"""Tests of WatchOutages, which logs failed watches."""

from __future__ import annotations

import logging

import pytest
from bayplan.kube.http.api_request import ResourceExpiredError
from bayplan.kube.watches.watch_stream import WatchOutages

from scheduler_core.errors import ForbiddenError, ServerUnavailableError
from tests.support.virtual_clock import VirtualClock

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
