"""The driver of Firefox is found on PATH or in the cache, and is else built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.geckodriver import VERSION, MissingGeckodriver, geckodriver


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a path on PATH, which is otherwise empty, as is the cache."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin" / "geckodriver"


def test_the_installed_one_is_used(program: Path) -> None:
    """A geckodriver on PATH is used."""
    program.touch(mode=0o755)
    assert geckodriver() == program


def test_the_built_one_is_used_again(program: Path, tmp_path: Path) -> None:
    """That of the cache is used without a build."""
    built = tmp_path / "cache" / "bayplan" / f"geckodriver-{VERSION}" / "geckodriver"
    built.parent.mkdir(parents=True)
    built.touch(mode=0o755)
    assert geckodriver() == built


def test_a_failed_build_is_reported(program: Path) -> None:
    """Without Cargo, the error names what to install; the output of a failed build is part of the error."""
    with pytest.raises(MissingGeckodriver, match="cargo is not on PATH; install Rust"):
        geckodriver()
    cargo = program.with_name("cargo")
    cargo.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    cargo.chmod(0o755)
    with pytest.raises(MissingGeckodriver, match="no network"):
        geckodriver()
