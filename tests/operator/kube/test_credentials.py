"""Tests of plain kubeconfigs and service accounts: both load the same credentials as the client library."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.kube.credentials import (
    ConfiguredAccess,
    Credentials,
    PlainKubeconfig,
    from_kubeconfig,
    from_service_account,
)
from kubernetes.aio.config import load_kube_config

from hack.controlplane.certificates import Authority
from scheduler_core.errors import ConfigError
from tests.support.tables import table

_AUTHORITY = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
_DATA = base64.b64encode(_AUTHORITY.encode()).decode()


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """Write a kubeconfig and the files that it names."""
    for name, text in {"ca.crt": _AUTHORITY, "me.crt": "cert", "me.key": "key", "token": "from file"}.items():
        (folder / name).write_text(text)
    content = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": cluster}, {"name": "other", "cluster": {"any": "thing"}}],
        "users": [{"name": "u", "user": user}, {"name": "other", "user": {"exec": {"command": "x"}}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return path


def comparable(credentials: Credentials) -> dict[str, Any]:
    """Return the credentials as values, with the certificate authority as text."""
    values = dataclasses.asdict(credentials)
    file, data = values.pop("ssl_ca_cert"), values.pop("ca_cert_data")
    return {**values, "authority": Path(file).read_text() if file else data}


AUTHORITY = Authority()
_HTTPS = {"server": "https://127.0.0.1:6443"}


def test_a_plugin_rotates_certificates_after_the_kubeconfig_changed(tmp_path: Path) -> None:
    """Certificates that a credential plugin returns later are used, also if the kubeconfig was changed before."""
    answer = tmp_path / "answer.json"
    version = "client.authentication.k8s.io/v1"

    def rotate() -> str:
        issued = AUTHORITY.issue("client")
        status = {"clientCertificateData": issued.certificate, "clientKeyData": issued.key}
        answer.write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
        return issued.certificate

    def used(access: ConfiguredAccess) -> str:
        return Path(access.credentials.cert_file or "").read_text()

    user = {"exec": {"apiVersion": version, "command": "cat", "args": [str(answer)], "interactiveMode": "Never"}}
    path = kubeconfig(tmp_path, _HTTPS | {"insecure-skip-tls-verify": True}, user)

    async def run() -> None:
        first = rotate()
        access = await from_kubeconfig(path)
        assert used(access) == first
        path.write_text(path.read_text() + "# edited\n")
        await access.authorization()
        for _ in range(2):
            issued = rotate()
            await access.authorization()
            assert used(access) == issued

    asyncio.run(run())


@table(
    "cluster, user",
    ("no-credentials", {"server": "http://a:1"}, {}),
    ("token", _HTTPS, {"token": "abc"}),
    ("token-file", _HTTPS, {"tokenFile": "token"}),
    ("token-before-token-file", _HTTPS, {"token": "abc", "tokenFile": "token"}),
    ("authority", _HTTPS | {"certificate-authority": "ca.crt"}, {"token": "abc"}),
    ("authority-data", _HTTPS | {"certificate-authority-data": _DATA}, {"token": "abc"}),
    ("data-before-file", _HTTPS | {"certificate-authority": "none", "certificate-authority-data": _DATA}, {}),
    ("client-certificate", _HTTPS, {"client-certificate": "me.crt", "client-key": "me.key"}),
    ("insecure", _HTTPS | {"insecure-skip-tls-verify": True}, {"token": "abc"}),
    ("proxy", _HTTPS | {"tls-server-name": "k", "proxy-url": "http://p"}, {"token": "abc"}),
    ("extensions", _HTTPS | {"extensions": [{"name": "e"}]}, {"token": "abc"}),
)
async def test_loaded_as_by_the_client_library(cluster: dict[str, Any], user: dict[str, Any], tmp_path: Path) -> None:
    """A plain kubeconfig loads the same credentials as the client library, relative file names included."""
    path = kubeconfig(tmp_path, cluster, user)
    own, expected = Credentials(), Credentials()
    PlainKubeconfig(path, None).load(own)
    load: Any = load_kube_config  # the library has no annotations
    await load(config_file=str(path), client_configuration=expected, persist_config=False)
    assert comparable(own) == comparable(expected)


@table(
    "cluster, user",
    ("plugin", _HTTPS, {"exec": {"command": "x"}}),
    ("auth-provider", _HTTPS, {"auth-provider": {"name": "oidc"}}),
    ("password", _HTTPS, {"username": "a", "password": "b"}),
    ("certificate-data", _HTTPS, {"client-certificate-data": _DATA, "client-key-data": _DATA}),
    ("missing-file", _HTTPS | {"certificate-authority": "absent"}, {"token": "abc"}),
    ("no-base64", _HTTPS | {"certificate-authority-data": "a"}, {"token": "abc"}),
    ("unknown-field", _HTTPS | {"disable-compression": True}, {"token": "abc"}),
    ("wrong-type", {"server": 1}, {"token": "abc"}),
)
def test_other_kubeconfigs_are_rejected(cluster: dict[str, Any], user: dict[str, Any], tmp_path: Path) -> None:
    """A kubeconfig with unsupported content is rejected, so that the client library reads it or reports the error."""
    path = kubeconfig(tmp_path, cluster, user)
    with pytest.raises(ValueError, match=r"\S"):
        PlainKubeconfig(path, None).load(Credentials())


@pytest.mark.parametrize("content", ["", "a: [", "contexts: []", "contexts: 1"])
def test_not_a_kubeconfig(content: str, tmp_path: Path) -> None:
    """A document that is not a kubeconfig is rejected."""
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"\S"):
        PlainKubeconfig(path, None)


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the mounted files of a service account, and set the environment of a pod."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text(AUTHORITY.certificate)
    return tmp_path


async def test_service_account(account: Path) -> None:
    """The address comes from the environment, and a rotated token is read again without its line feed."""
    access = await from_service_account(account)
    assert access.base_url == "https://[fd00::1]:443"
    assert access.ssl_context is not None
    assert len(access.ssl_context.get_ca_certs()) == 1
    assert await access.authorization() == "Bearer one"
    (account / "token").write_text("two\n")
    assert await access.authorization() == "Bearer two"


@pytest.mark.parametrize("file", ["token", "ca.crt"])
@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_incomplete_service_account(account: Path, file: str, content: str | None) -> None:
    """A missing or empty file is a configuration error."""
    (account / file).unlink()
    if content is not None:
        (account / file).write_text(content)
    with pytest.raises(ConfigError, match="not running in a cluster"):
        await from_service_account(account)
