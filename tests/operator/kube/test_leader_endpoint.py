"""Tests of the address that a leader announces."""

from __future__ import annotations

import pytest
from bayplan.kube.leader_endpoint import LeaderEndpoint, announced_endpoint, announcement, endpoint_url

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
        pytest.param("https://169.254.169.254:80", id="metadata of a cloud"),
        pytest.param("https://[::ffff:169.254.169.254]:80", id="metadata of a cloud by IPv6"),
        pytest.param("https://[fe80::1]:80", id="link-local"),
        pytest.param("https://[fd00::1%eth0]:80", id="a zone"),
        pytest.param("https://224.0.0.1:80", id="multicast"),
        pytest.param("https://0.0.0.0:80", id="no address"),
        pytest.param("https://255.255.255.255:80", id="broadcast"),
        pytest.param("https://kubernetes.default.svc:443", id="a name"),
        pytest.param("https://2130706433:80", id="an address as one number"),
        pytest.param("https://10.0.0.7", id="no port"),
        pytest.param("https://10.0.0.7:0", id="port 0"),
        pytest.param("https://10.0.0.7:99999", id="no such port"),
        pytest.param("https://10.0.0.7:80/api/v1/secrets?a=", id="a path"),
        pytest.param("https://user:password@10.0.0.7:80", id="a user"),
        pytest.param("https://10.0.0.7:80#x", id="a fragment"),
        pytest.param("https://[fd00::7:80", id="half a bracket"),
        pytest.param("http://10.0.0.7:80", id="plain HTTP to another host"),
        pytest.param("file:///etc/passwd", id="a file"),
        pytest.param("ftp://10.0.0.7:21", id="another protocol"),
        pytest.param("", id="nothing"),
    ],
)
def test_a_forged_url_is_not_connected_to(url: str) -> None:
    """A user who may write the Lease can choose only the address of one host and a port."""
    assert announced_endpoint(announcement("me", LeaderEndpoint(url, SHA)), "me") is None


@pytest.mark.parametrize("fingerprint", ["", "00", SHA.upper(), f"{SHA}0", f"{SHA[:-1]}g"])
def test_https_needs_a_certificate_to_compare(fingerprint: str) -> None:
    """The certificate that an operator makes for itself is not signed by a CA."""
    endpoint = LeaderEndpoint("https://10.0.0.7:10259", fingerprint)
    assert announced_endpoint(announcement("me", endpoint), "me") is None


@pytest.mark.parametrize(
    ("text", "holder"),
    [
        pytest.param(announcement("before", LeaderEndpoint("https://10.0.0.7:1", SHA)), "me", id="an earlier leader's"),
        pytest.param(announcement("", LeaderEndpoint("https://10.0.0.7:1", SHA)), "", id="a released Lease"),
        pytest.param(None, "me", id="none"),
        pytest.param({"identity": "me"}, "me", id="no text"),
        pytest.param("https://10.0.0.7:1", "me", id="no JSON"),
        pytest.param('{"identity":"me"}', "me", id="no URL"),
        pytest.param('{"identity":"me","url":7}', "me", id="a number"),
        pytest.param('{"identity":"me","url":"https://10.0.0.7:1"' + " " * 1024 + "}", "me", id="too long"),
    ],
)
def test_what_is_no_announcement_of_the_holder(text: object, holder: str) -> None:
    """It is ignored."""
    assert announced_endpoint(text, holder) is None


def test_the_url_of_an_address() -> None:
    """IPv6 is in brackets."""
    assert endpoint_url("https", "fd00::7", 1) == "https://[fd00::7]:1"
    assert endpoint_url("http", "10.0.0.7", 1) == "http://10.0.0.7:1"
