"""Requests and CPU time of a drain are read from metrics and /proc."""

from __future__ import annotations

from benchmarks.server_load import busy_seconds, difference, requests_of

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="resourceclaims",subresource="",verb="PATCH",version="v1"} 3
apiserver_request_total{code="409",resource="resourceclaims",subresource="",verb="PATCH",version="v1"} 1
apiserver_request_total{code="200",resource="resourceclaims",subresource="status",verb="PATCH",version="v1"} 2
apiserver_request_total{code="200",resource="",subresource="/readyz",verb="GET",version=""} 5
apiserver_request_total{code="0",resource="pods",subresource="",verb="WATCH",version="v1"} 7
"""


def test_requests_by_kind() -> None:
    """Requests count whatever their response code; watches do not count."""
    assert requests_of(METRICS) == {"PATCH resourceclaims": 4, "PATCH resourceclaims/status": 2, "GET /readyz": 5}


def test_busy_seconds_grow() -> None:
    """The busy time of this process grows by at most the elapsed time, and the machine's does not shrink."""
    before = busy_seconds(())
    sum(range(3_000_000))
    grown = difference(busy_seconds(()), before)
    assert 0 < grown["benchmark"] <= grown["seconds"] + 0.1
    assert grown["machine"] >= 0
