"""Tests of the files and hosts that extenders of a profile may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bayplan.extenders.transport import AllowedFilesAndHosts, Transport, read_file

from scheduler_core.config.profile_config import Extender
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, ExtenderError
from tests.support.extender_server import ExtenderServer, Reply
from tests.support.tables import table


def extender(url: str, **fields: object) -> Extender:
    return validate(Extender, {"urlPrefix": url, **fields})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return an allowed directory that looks like a mounted Secret, next to a file outside it."""
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


def test_links_within_the_directory_are_followed(files: Path) -> None:
    """Symbolic links within the directory are followed."""
    assert read_file(str(files / "ca.crt"), "caFile", AllowedFilesAndHosts(files)) == "PEM"


def test_a_configuration_file_may_name_any_file(files: Path) -> None:
    """The extenders of the operator's own configuration file may use any file."""
    assert read_file(str(files.parent / "token"), "caFile", None) == "the operator's own"


@table(
    "name, problem",
    ("parent directory", "../token", "must be in"),
    ("link out of the directory", "..2026_01_01/away", "must be in"),
    ("endless device", "/dev/zero", "must be in"),
    ("token of the operator", "/var/run/secrets/kubernetes.io/serviceaccount/token", "must be in"),
    ("pipe without a writer", "..2026_01_01/pipe", "is not a regular file"),
    ("directory", "..2026_01_01", "cannot be read"),
    ("link to itself", "..2026_01_01/loop", "cannot be read"),
    ("missing", "..2026_01_01/none", "cannot be read"),
    ("invalid path", "a\0b", "cannot be read"),
    ("not text", "..2026_01_01/bytes", "is not PEM"),
    ("too long", "..2026_01_01/long", "is longer than 256 KiB"),
)
def test_other_files_are_rejected(files: Path, name: str, problem: str) -> None:
    """Other files are rejected without a wait, and the error contains nothing of the file."""
    with pytest.raises(ConfigError) as raised:
        read_file(str(files / name), "caFile", AllowedFilesAndHosts(files))
    (found,) = raised.value.problems
    assert found.path == "tlsConfig.caFile"
    assert problem in found.message
    assert "own" not in found.message


@table(
    "url, hosts",
    ("no list", "http://anywhere.example.com/x", ()),
    ("by name", "http://Licences.Example.com./x", ("licences.example.com",)),
    ("by suffix", "http://licences.tools.svc:80", ("other", "*.svc")),
    ("by address", "http://[::1]:80", ("::1",)),
)
def test_allowed_hosts(url: str, hosts: tuple[str, ...]) -> None:
    """Host names are compared without regard to case and a trailing dot."""
    AllowedFilesAndHosts(Path("/"), hosts).check(extender(url))


@table(
    "url, problem",
    ("cloud metadata service", "http://169.254.169.254/latest", "is not allowed"),
    ("same prefix", "http://example.com.evil.org", "is not allowed"),
    ("same suffix without a dot", "http://evilexample.com", "is not allowed"),
    ("suffix alone", "http://svc", "is not allowed"),
    ("password", "http://user:secret@example.com", "must not contain a user or password"),
)
def test_other_hosts_are_rejected(url: str, problem: str) -> None:
    """A profile with another host is rejected with a message that contains no password."""
    with pytest.raises(ConfigError) as raised:
        AllowedFilesAndHosts(Path("/"), ("example.com", "*.svc")).check(extender(url))
    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)


@table("bounds, error", ("profile", AllowedFilesAndHosts(Path("/")), "code 307"), ("configuration file", None, ""))
async def test_redirects(bounds: AllowedFilesAndHosts | None, error: str) -> None:
    """A redirect of an extender of a profile is not followed, so its pods are not sent to another host."""
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
