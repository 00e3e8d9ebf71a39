"""Tests of access by kubeconfig: forms of credentials, rotated tokens, and error messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.kube.credentials import from_kubeconfig, from_service_account

from scheduler_core.errors import ConfigError
from tests.support.tables import table


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    """Write a kubeconfig with one cluster and user."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **cluster}},
            {"name": "d", "cluster": {"server": "http://127.0.0.1:2"}},
        ],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def test_token(tmp_path: Path) -> None:
    """A token in the kubeconfig becomes a bearer header, and the server's URL loses its trailing slash."""
    access = await from_kubeconfig(kubeconfig(tmp_path / "config", {"token": "abc"}))
    assert access.base_url == "http://127.0.0.1:1"
    assert await access.authorization() == "Bearer abc"
    assert (access.ssl_context, access.proxy) == (None, None)


async def test_context(tmp_path: Path) -> None:
    """A context other than the current one can be chosen."""
    access = await from_kubeconfig(kubeconfig(tmp_path / "config", {"token": "abc"}), "other")
    assert access.base_url == "http://127.0.0.1:2"


async def test_token_file_is_read_again(tmp_path: Path) -> None:
    """A rotated token file is read again, without its line feed."""
    token = tmp_path / "token"
    token.write_text("one\n")
    access = await from_kubeconfig(kubeconfig(tmp_path / "config", {"tokenFile": str(token)}))
    assert await access.authorization() == "Bearer one"
    token.write_text("two\n")
    assert await access.authorization() == "Bearer two"


async def test_credential_plugin(tmp_path: Path) -> None:
    """An exec plugin returns the token and is called again when the token is renewed."""
    credentials = tmp_path / "answer"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [str(credentials)]}
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
    credentials.write_text(credential % "one")
    access = await from_kubeconfig(kubeconfig(tmp_path / "config", {"exec": plugin}))
    assert await access.authorization() == "Bearer one"
    credentials.write_text(credential % "two")
    assert await access.authorization() == "Bearer two"


async def test_proxy_and_server_name(tmp_path: Path) -> None:
    """The cluster's proxy and TLS server name are passed to the connection."""
    extra = {"server": "https://[::1]:1/", "proxy-url": "http://proxy:3128", "tls-server-name": "kube"}
    access = await from_kubeconfig(kubeconfig(tmp_path / "config", {}, **extra))
    assert access.proxy == "http://proxy:3128"
    assert access.ssl_context is not None
    assert access.server_hostname == "kube"
    assert await access.authorization() is None


TWO_CONTEXTS = "current-context: gone\ncontexts: [{name: dev}, {name: test}]"


@table(
    "content, context, text",
    ("no-file", None, None, "does not exist"),
    ("empty-file", "", None, "has no current context; it has no contexts"),
    ("incomplete", "clusters: []", None, "has no current context; it has no contexts"),
    ("unknown", TWO_CONTEXTS, "prod", 'has no context "prod"; contexts: dev, test; set --context'),
    ("unknown-current", TWO_CONTEXTS, None, 'has no context "gone"; contexts: dev, test'),
    ("context-without-cluster", TWO_CONTEXTS, "dev", "cannot be used"),
    ("invalid-yaml", "a: [", None, "cannot be used"),
)
async def test_bad_kubeconfig(tmp_path: Path, content: str | None, context: str | None, text: str) -> None:
    """A missing or broken kubeconfig is a configuration error that names the file."""
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=text) as caught:
        await from_kubeconfig(path, context)
    assert str(path) in str(caught.value)


async def test_not_in_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a pod, the error message names the flag to set."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="set --kubeconfig"):
        await from_service_account()
