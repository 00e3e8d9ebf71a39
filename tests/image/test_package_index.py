"""Settings of the host that are passed to the build."""

from __future__ import annotations

import stat
from pathlib import Path

from hack.image.package_index import host_settings, secret_flags
from tests.support.tables import table

_MIRROR = "https://mirror.example/simple"


@table(
    "environment, configuration, expected",
    ("PyPI", {}, "", {}),
    ("other variables", {"HOME": "/h", "PIP_FIND_LINKS": "/w", "TOKEN": "s"}, "", {}),
    ("index of pip", {"PIP_INDEX_URL": _MIRROR}, "", {"PIP_INDEX_URL": _MIRROR, "UV_DEFAULT_INDEX": _MIRROR}),
    ("index of uv", {"UV_DEFAULT_INDEX": _MIRROR}, "", {"PIP_INDEX_URL": _MIRROR, "UV_DEFAULT_INDEX": _MIRROR}),
    (
        "file of pip",
        {},
        f"[global]\nindex-url = {_MIRROR}\ntrusted-host = mirror.example\n",
        {"PIP_INDEX_URL": _MIRROR, "UV_DEFAULT_INDEX": _MIRROR, "PIP_TRUSTED_HOST": "mirror.example"},
    ),
    (
        "variable before file",
        {"PIP_INDEX_URL": _MIRROR},
        "[global]\nindex_url = https://other.example/simple\n",
        {"PIP_INDEX_URL": _MIRROR, "UV_DEFAULT_INDEX": _MIRROR},
    ),
    ("proxy", {"https_proxy": "http://proxy.example:3128"}, "", {"https_proxy": "http://proxy.example:3128"}),
)
def test_settings_are_passed_on(
    tmp_path: Path, environment: dict[str, str], configuration: str, expected: dict[str, str]
) -> None:
    """The build uses the package index of the host."""
    file = tmp_path / "pip.conf"
    file.write_text(configuration)
    assert host_settings(environment, [file]) == (expected, None)


def test_certificates_are_passed_on(tmp_path: Path) -> None:
    """The build trusts the host's certificates; a file that does not exist is ignored."""
    trusted = tmp_path / "ca.pem"
    trusted.touch()
    environment = {"PIP_CERT": str(tmp_path / "absent"), "SSL_CERT_FILE": str(trusted)}
    assert host_settings(environment, [])[1] == trusted


def test_secrets_are_private(tmp_path: Path) -> None:
    """A password in an index URL is written to a file with mode 0600 and is in no argument."""
    url = "https://user:pass'word@mirror.example/simple"
    environment = {"PIP_INDEX_URL": url, "PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path)}
    flags = secret_flags(tmp_path, environment)
    assert not any("word" in flag for flag in flags)
    (index,) = [flag.partition("src=")[2] for flag in flags if "id=index" in flag]
    assert stat.S_IMODE(Path(index).stat().st_mode) == 0o600
    assert "export PIP_INDEX_URL='https://user:pass'\"'\"'word@mirror.example/simple'" in Path(index).read_text()
