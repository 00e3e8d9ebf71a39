"""Settings of what is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from bayplan.settings import load_settings

from scheduler_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("tlsCertFile: /tls.crt", "tlsPrivateKeyFile: must be given with tlsCertFile", id="no key"),
        pytest.param("tlsPrivateKeyFile: /tls.key", "tlsCertFile: must be given with tlsPrivateKeyFile", id="no pair"),
        pytest.param("authorizeRequests: true", "tokens must not travel in the clear", id="tokens in the clear"),
        pytest.param(
            "advertiseAddress: bayplan-0", 'advertiseAddress: must be an IP address, not "bayplan-0"', id="name"
        ),
        pytest.param("advertiseAddress: 0.0.0.0", "advertiseAddress: must be the address of one host", id="no address"),
        pytest.param("tlsMinVersion: VersionTLS11", "tlsMinVersion", id="an old version"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, text: str, told: str) -> None:
    """It is told at start, by the field's name."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_settings({}, path)


@pytest.mark.parametrize(
    ("flags", "serves_tls"),
    [
        pytest.param({}, False, id="plain HTTP on loopback unless asked"),
        pytest.param({"secure_serving": True}, True, id="asked for"),
        pytest.param({"tls_cert_file": "/c", "tls_private_key_file": "/k"}, True, id="files say enough"),
    ],
)
def test_when_https_is_served(flags: dict[str, object], *, serves_tls: bool) -> None:
    """By a flag, or since there is a certificate for it."""
    settings = load_settings(flags)
    assert settings.serves_tls == serves_tls
    assert not settings.authorize_requests
