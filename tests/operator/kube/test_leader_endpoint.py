"""Tests of the endpoint that a leader announces in its Lease."""

from __future__ import annotations

import pytest
from bayplan.kube.leader_election import LeaderEndpoint, announced_endpoint, announcement, endpoint_url

SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param(LeaderEndpoint("https://10.0.0.7:10259", SHA), id="IPv4"),
        pytest.param(LeaderEndpoint("https://[fd00::7]:10259", SHA), id="IPv6"),
        pytest.param(LeaderEndpoint("https://127.0.0.1:10259", SHA), id="loopback"),
        pytest.param(LeaderEndpoint("http://127.0.0.1:10259"), id="plain HTTP on loopback"),
        pytest.param(LeaderEndpoint("http://[::1]:10259"), id="plain HTTP on loopback by IPv6"),
    ],
)
def test_an_announcement_is_read(endpoint: LeaderEndpoint) -> None:
    """The annotation decodes to the holder's endpoint."""
    assert announced_endpoint(announcement("me", endpoint), "me") == endpoint


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https://169.254.169.254:80", id="cloud metadata service"),
        pytest.param("https://[::ffff:169.254.169.254]:80", id="cloud metadata service by IPv6"),
        pytest.param("https://[fe80::1]:80", id="link-local"),
        pytest.param("https://[fd00::1%eth0]:80", id="IPv6 zone"),
        pytest.param("https://224.0.0.1:80", id="multicast"),
        pytest.param("https://0.0.0.0:80", id="unspecified address"),
        pytest.param("https://255.255.255.255:80", id="broadcast"),
        pytest.param("https://kubernetes.default.svc:443", id="host name"),
        pytest.param("https://2130706433:80", id="address as one number"),
        pytest.param("https://10.0.0.7", id="no port"),
        pytest.param("https://10.0.0.7:0", id="port 0"),
        pytest.param("https://10.0.0.7:99999", id="port out of range"),
        pytest.param("https://10.0.0.7:80/api/v1/secrets?a=", id="path"),
        pytest.param("https://user:password@10.0.0.7:80", id="user and password"),
        pytest.param("https://10.0.0.7:80#x", id="fragment"),
        pytest.param("https://[fd00::7:80", id="unclosed bracket"),
        pytest.param("http://10.0.0.7:80", id="plain HTTP to another host"),
        pytest.param("file:///etc/passwd", id="file URL"),
        pytest.param("ftp://10.0.0.7:21", id="unsupported protocol"),
        pytest.param("", id="empty"),
    ],
)
def test_a_forged_url_is_ignored(url: str) -> None:
    """A user who can write the Lease can choose only the IP address and the port of the endpoint."""
    assert announced_endpoint(announcement("me", LeaderEndpoint(url, SHA)), "me") is None


@pytest.mark.parametrize("fingerprint", ["", "00", SHA.upper(), f"{SHA}0", f"{SHA[:-1]}g"])
def test_https_needs_a_certificate_fingerprint(fingerprint: str) -> None:
    """An HTTPS endpoint without a valid fingerprint is ignored, because its certificate may be self-signed."""
    endpoint = LeaderEndpoint("https://10.0.0.7:10259", fingerprint)
    assert announced_endpoint(announcement("me", endpoint), "me") is None


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        pytest.param(announcement("before", LeaderEndpoint("https://10.0.0.7:1", SHA)), "me", id="earlier leader"),
        pytest.param(announcement("", LeaderEndpoint("https://10.0.0.7:1", SHA)), "", id="released Lease"),
        pytest.param(None, "me", id="missing"),
        pytest.param({"identity": "me"}, "me", id="not a string"),
        pytest.param("https://10.0.0.7:1", "me", id="not JSON"),
        pytest.param('{"identity":"me"}', "me", id="no URL"),
        pytest.param('{"identity":"me","url":7}', "me", id="URL is a number"),
        pytest.param('{"identity":"me","url":"https://10.0.0.7:1"' + " " * 1024 + "}", "me", id="too long"),
    ],
)
def test_an_invalid_announcement_is_ignored(text: object, holder: str) -> None:
    """An annotation that is not a valid announcement of the holder is ignored."""
    assert announced_endpoint(text, holder) is None


def test_endpoint_url() -> None:
    """An IPv6 address is in brackets."""
    assert endpoint_url("https", "fd00::7", 1) == "https://[fd00::7]:1"
    assert endpoint_url("http", "10.0.0.7", 1) == "http://10.0.0.7:1"
