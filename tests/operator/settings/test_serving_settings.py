"""Tests of the settings of the HTTP server."""

from __future__ import annotations

from pathlib import Path

import pytest
from bayplan.settings.operator_settings import load_settings

from scheduler_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("tlsCertFile: /tls.crt", "tlsPrivateKeyFile: must be set together with tlsCertFile", id="no key"),
        pytest.param(
            "tlsPrivateKeyFile: /tls.key",
            "tlsCertFile: must be set together with tlsPrivateKeyFile",
            id="no certificate",
        ),
        pytest.param("authorizeRequests: true", "tokens must not be sent unencrypted", id="unencrypted tokens"),
        pytest.param(
            "advertiseAddress: bayplan-0", 'advertiseAddress: must be an IP address, not "bayplan-0"', id="name"
        ),
        pytest.param(
            "advertiseAddress: 0.0.0.0", "advertiseAddress: must be the address of one host", id="unspecified address"
        ),
        pytest.param("tlsMinVersion: VersionTLS11", "tlsMinVersion", id="old version"),
        pytest.param("webhook: {}", "webhook.configuration: set this for a generated certificate", id="webhook"),
        pytest.param(
            "webhook: {configuration: a, tlsCertFile: /c, tlsPrivateKeyFile: /k}",
            "webhook.configuration: set this for a generated certificate",
            id="two certificates of the webhook",
        ),
        pytest.param(
            "webhook: {tlsCertFile: /c}", "webhook.tlsCertFile: must be set together", id="no key of the webhook"
        ),
        pytest.param(
            "webhook: {configuration: a, address: '9443'}",
            'address: must be host:port such as "0.0.0.0:9443"',
            id="port",
        ),
    ],
)
def test_invalid_combinations(tmp_path: Path, text: str, expected: str) -> None:
    """An invalid combination of settings is an error that names the field."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        load_settings({}, path)


@pytest.mark.parametrize(
    ("flags", "serves_tls"),
    [
        pytest.param({}, False, id="plain HTTP on loopback by default"),
        pytest.param({"secure_serving": True}, True, id="enabled"),
        pytest.param({"tls_cert_file": "/c", "tls_private_key_file": "/k"}, True, id="implied by files"),
    ],
)
def test_https_is_enabled_by_settings(flags: dict[str, object], *, serves_tls: bool) -> None:
    """HTTPS is enabled by the setting or by certificate files."""
    settings = load_settings(flags)
    assert settings.serves_tls == serves_tls
    assert not settings.authorize_requests
