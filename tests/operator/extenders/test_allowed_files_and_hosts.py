"""Tests of the files and hosts that a profile's extenders may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bayplan.extenders.allowed_files_and_hosts import AllowedFilesAndHosts, read_file
from bayplan.extenders.transport import Transport

from scheduler_core.config.extender_config import Extender
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, ExtenderError
from tests.support.extender_server import ExtenderServer, Reply


def extender(url: str, **fields: object) -> Extender:
    return validate(Extender, {"urlPrefix": url, **fields})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return the directory of the setting, as a mounted Secret makes it, beside a file that no profile may read."""
    (tmp_path / "token").write_text("the operator's own")
    real = tmp_path / "extenders" / "..2026_01_01"
    real.mkdir(parents=True)
    (real / "ca.crt").write_text("PEM")
    (real / "bytes").write_bytes(b"\xff\xfe")
    (real / "long").write_text("x" * (300 << 10))
    (real / "away").symlink_to(tmp_path / "token")
    (real / "loop").symlink_to(real / "loop")
    os.mkfifo(real / "pipe")
    (tmp_path / "extenders" / "ca.crt").symlink_to(Path("..2026_01_01") / "ca.crt")
    return tmp_path / "extenders"


def test_a_file_of_a_mounted_secret(files: Path) -> None:
    """Symbolic links within the directory are followed."""
    assert read_file(str(files / "ca.crt"), "caFile", AllowedFilesAndHosts(files)) == "PEM"


def test_a_file_of_a_configuration_file(files: Path) -> None:
    """The author of the operator's own configuration may name any file."""
    assert read_file(str(files.parent / "token"), "caFile", None) == "the operator's own"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("../token", "must be in", id="above"),
        pytest.param("..2026_01_01/away", "must be in", id="link out of it"),
        pytest.param("/dev/zero", "must be in", id="device without an end"),
        pytest.param("/var/run/secrets/kubernetes.io/serviceaccount/token", "must be in", id="own token"),
        pytest.param("..2026_01_01/pipe", "is not a regular file", id="pipe that nobody writes to"),
        pytest.param("..2026_01_01", "cannot be read", id="directory"),
        pytest.param("..2026_01_01/loop", "cannot be read", id="link to itself"),
        pytest.param("..2026_01_01/none", "cannot be read", id="nothing"),
        pytest.param("a\0b", "cannot be read", id="no path"),
        pytest.param("..2026_01_01/bytes", "is not PEM", id="bytes"),
        pytest.param("..2026_01_01/long", "is longer than 256 KiB", id="long"),
    ],
)
def test_files_that_are_refused(files: Path, name: str, problem: str) -> None:
    """The error comes without a wait, and without any content of the file."""
    with pytest.raises(ConfigError) as raised:
        read_file(str(files / name), "caFile", AllowedFilesAndHosts(files))
    (found,) = raised.value.problems
    assert found.path == "tlsConfig.caFile"
    assert problem in found.message
    assert "own" not in found.message


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        pytest.param("http://anywhere.example.com/x", (), id="no list"),
        pytest.param("http://Licences.Example.com./x", ("licences.example.com",), id="by name"),
        pytest.param("http://licences.tools.svc:80", ("other", "*.svc"), id="by its end"),
        pytest.param("http://[::1]:80", ("::1",), id="by address"),
    ],
)
def test_hosts_that_may_be_called(url: str, hosts: tuple[str, ...]) -> None:
    """Names are compared like the network does."""
    AllowedFilesAndHosts(Path("/"), hosts).check(extender(url))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        pytest.param("http://169.254.169.254/latest", "is not allowed", id="metadata of the cloud"),
        pytest.param("http://example.com.evil.org", "is not allowed", id="same beginning"),
        pytest.param("http://evilexample.com", "is not allowed", id="same end"),
        pytest.param("http://svc", "is not allowed", id="the end alone"),
        pytest.param("http://user:secret@example.com", "must not contain a user or password", id="password"),
    ],
)
def test_hosts_that_may_not_be_called(url: str, problem: str) -> None:
    """Such a profile is rejected, and its message contains no password."""
    with pytest.raises(ConfigError) as raised:
        AllowedFilesAndHosts(Path("/"), ("example.com", "*.svc")).check(extender(url))
    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        pytest.param(AllowedFilesAndHosts(Path("/")), "code 307", id="bounded"),
        pytest.param(None, "", id="a configuration file, as with kube-scheduler"),
    ],
)
async def test_redirects(bounds: AllowedFilesAndHosts | None, error: str) -> None:
    """A redirect does not send a bounded extender's pods to another host."""
    with ExtenderServer() as away, ExtenderServer() as server:
        away.rules["filter"] = lambda _: {}
        server.rules["filter"] = lambda _: Reply(status=307, headers={"Location": f"{away.url}/filter"})
        transport = Transport(extender(server.url, filterVerb="filter"), bounds)
        try:
            if error:
                with pytest.raises(ExtenderError, match=error):
                    await transport.send("filter", b"{}", repeat=False)
            else:
                await transport.send("filter", b"{}", repeat=False)
        finally:
            await transport.close()
        assert len(away.bodies("filter")) == (0 if error else 1)
