"""Tests of TLS to an extender, and of unusable certificates."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from bayplan.extenders import transport as transport_module
from bayplan.extenders.transport import Transport
from bayplan.kube.http.byte_stream import client_context

from hack.controlplane.certificates import Authority
from scheduler_core.config.profile_config import Extender
from scheduler_core.errors import ConfigError, ExtenderError
from tests.support.extender_server import ExtenderServer
from tests.support.tables import table

TLS_FILES = {"caFile": "ca.crt", "certFile": "client.crt", "keyFile": "client.key"}
AUTHORITY = Authority()
OTHER_AUTHORITY = Authority("stranger")
SERVER = AUTHORITY.issue("licences.example.com")
CLIENT = AUTHORITY.issue("client")


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def extender(url: str, **fields: Any) -> Extender:
    return Extender.model_validate({"urlPrefix": url, "filterVerb": "f", **fields})


@asynccontextmanager
async def transport(url: str, **fields: Any) -> AsyncIterator[Transport]:
    made = Transport(extender(url, **fields))
    try:
        yield made
    finally:
        await made.close()


@table(
    "fields",
    ("authority", {"tlsConfig": {"caData": data(AUTHORITY.certificate)}}),
    ("authority-and-https", {"tlsConfig": {"caData": data(AUTHORITY.certificate)}, "enableHTTPS": True}),
    ("server-name", {"tlsConfig": {"caData": data(AUTHORITY.certificate), "serverName": "licences.example.com"}}),
    ("data-before-file", {"tlsConfig": {"caData": data(AUTHORITY.certificate), "caFile": "/nonexistent"}}),
    ("https-without-authority", {"enableHTTPS": True}),
    ("insecure", {"tlsConfig": {"insecure": True}}),
)
async def test_trusted_servers(tmp_path: Path, fields: dict[str, Any]) -> None:
    """A call to a trusted server succeeds."""
    with ExtenderServer(SERVER, tmp_path) as server:
        server.rules["f"] = lambda _: {"ok": True}
        async with transport(server.url, **fields) as made:
            assert await made.send("f", b"{}", repeat=True) == b'{"ok": true}'


@table(
    "fields",
    ("system-authorities", {}),
    ("another-authority", {"tlsConfig": {"caData": data(OTHER_AUTHORITY.certificate)}}),
    ("another-name", {"tlsConfig": {"caData": data(AUTHORITY.certificate), "serverName": "other.example.com"}}),
)
async def test_untrusted_servers(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Nothing is sent to an untrusted server."""
    with ExtenderServer(SERVER, tmp_path) as server:
        async with transport(server.url, **fields) as made:
            with pytest.raises(ExtenderError, match="certificate verify failed"):
                await made.send("f", b"{}", repeat=True)
        assert server.calls == []


async def test_renewed_files_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Certificates renewed in place are used for later calls; half a renewal changes nothing and is logged once."""
    monkeypatch.setattr(transport_module, "_RENEW_SECONDS", 0.0)
    clients, files = tmp_path / "clients.crt", tmp_path / "files"
    renewed = Authority("renewed")
    clients.write_text(AUTHORITY.certificate + renewed.certificate)
    files.mkdir()
    (files / "ca.crt").write_text(AUTHORITY.certificate)
    CLIENT.write(files, "client")
    tls = {name: str(files / file) for name, file in TLS_FILES.items()}
    with ExtenderServer(SERVER, tmp_path, clients) as server:
        server.rules["f"] = lambda _: {}
        async with transport(server.url, tlsConfig=tls) as made:
            await made.send("f", b"{}", repeat=True)
            pair = renewed.issue("renewed client", key_type="rsa")
            (files / "client.crt").write_text(pair.certificate)
            for _ in range(2):
                await made.send("f", b"{}", repeat=True)
            (files / "client.key").write_text(pair.key)
            (files / "ca.crt").write_text(renewed.certificate)
            server.serve_with(renewed.issue("licences.example.com"))
            await made.send("f", b"{}", repeat=True)
    assert [call.client for call in server.calls] == ["client"] * 3 + ["renewed client"]
    assert caplog.text.count("the last valid certificates stay in use") == 1


async def test_equal_files_keep_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A context is made for new content of the files only: another one opens new connections."""
    monkeypatch.setattr(transport_module, "_RENEW_SECONDS", 0.0)
    made_contexts = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal made_contexts
        made_contexts += 1
        return client_context(*args, **options)

    monkeypatch.setattr(transport_module, "client_context", counted)
    file = tmp_path / "ca.crt"
    file.write_text(AUTHORITY.certificate)
    with ExtenderServer(SERVER, tmp_path) as server:
        server.rules["f"] = lambda _: {}
        async with transport(server.url, tlsConfig={"caFile": str(file)}) as made:
            for _ in range(4):
                file.touch()
                await made.send("f", b"{}", repeat=True)
            assert made_contexts == 1
            file.write_text(f"{AUTHORITY.certificate}\n")
            await made.send("f", b"{}", repeat=True)
            assert made_contexts == 2


async def test_client_certificates_from_data(tmp_path: Path) -> None:
    """CA, certificate and key are read from the configuration."""
    authority = tmp_path / "ca.crt"
    authority.write_text(AUTHORITY.certificate)
    pair = {"certData": data(CLIENT.certificate), "keyData": data(CLIENT.key)}
    with ExtenderServer(SERVER, tmp_path, authority) as server:
        server.rules["f"] = lambda _: {}
        async with transport(server.url, tlsConfig={"caData": data(AUTHORITY.certificate), **pair}) as made:
            assert await made.send("f", b"{}", repeat=True) == b"{}"


async def test_the_scheme_of_the_url_is_used() -> None:
    """An http URL is called without TLS despite enableHTTPS, as in kube-scheduler."""
    with ExtenderServer() as server:
        server.rules["f"] = lambda _: {}
        async with transport(server.url, enableHTTPS=True) as made:
            assert await made.send("f", b"{}", repeat=True) == b"{}"


PAIR = {"certData": data(CLIENT.certificate), "keyData": data(CLIENT.key)}


@table(
    "url, tls, problem",
    ("no-authority-file", "https://x", {"caFile": "/nonexistent/ca.crt"}, "tlsConfig.caFile: cannot be read: "),
    ("bad-authority", "https://x", {"caData": data("rubbish")}, "tlsConfig.caData: contains no readable certificate"),
    ("binary-authority", "https://x", {"caData": "/w=="}, "tlsConfig.caData: is not PEM in base64"),
    (
        "no-certificate-file",
        "https://x",
        {"certFile": "/nonexistent/c", "keyData": PAIR["keyData"]},
        "tlsConfig.certFile: cannot be read: ",
    ),
    (
        "no-key-file",
        "https://x",
        {"certData": PAIR["certData"], "keyFile": "/nonexistent/k"},
        "tlsConfig.keyFile: cannot be read: ",
    ),
    (
        "another-key",
        "https://x",
        PAIR | {"keyData": data(SERVER.key)},
        "tlsConfig.certData: and its key (keyData) cannot be used together: ",
    ),
    ("bad-certificate", "https://x", PAIR | {"certData": data("rubbish")}, "tlsConfig.certData: and its key"),
    ("scheme", "ftp://x", {}, "urlPrefix: must begin with http:// or https:// and a host"),
    ("path-only", "/scheduler", {}, "urlPrefix: must begin with http:// or https:// and a host"),
    ("port", "http://x:port", {}, "urlPrefix: is not a URL"),
)
def test_unusable_configurations(url: str, tls: dict[str, str], problem: str) -> None:
    """An unusable configuration is an error that names the field and does not contain the key."""
    with pytest.raises(ConfigError) as caught:
        Transport(extender(url, tlsConfig=tls))
    assert str(caught.value).startswith(problem)
    assert CLIENT.key.splitlines()[1] not in str(caught.value)
    assert PAIR["keyData"] not in str(caught.value)
