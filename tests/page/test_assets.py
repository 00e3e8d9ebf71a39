"""Files of the page: vendored modules, licences, size, and nothing that the content security policy blocks."""

from __future__ import annotations

import gzip
import hashlib
import re
from importlib import resources
from pathlib import Path

import pytest
from bayplan.texts import document_formats as printable_module

from tests.page.page_server import ASSETS
from tests.support.presence import present

VENDOR = ASSETS / "vendor"
FILES = sorted(path for path in ASSETS.rglob("*") if path.is_file())
OWN = [path for path in FILES if VENDOR not in path.parents]
MODULES = [path for path in OWN if path.suffix == ".mjs"]
LIMIT_BYTES = 150_000
LINES = 400


def names(paths: list[Path]) -> list[str]:
    """Return the paths below the assets."""
    return [path.relative_to(ASSETS).as_posix() for path in paths]


def test_vendored_files_match_their_hashes() -> None:
    """Each vendored file has its hash in SHA256SUMS, and each hash has a file."""
    stated = dict(
        line.split(maxsplit=1)[::-1] for line in (VENDOR / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    )
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in FILES
        if VENDOR in path.parents and path.name not in ("SHA256SUMS", "README.md")
    }
    assert found == stated


def test_each_vendored_package_has_its_licence() -> None:
    """Each vendored name and version has a licence text."""
    packages = {path.stem for path in VENDOR.glob("*.*js")} | {path.stem for path in VENDOR.glob("*.css")}
    licences = {path.stem: path.read_text(encoding="utf-8") for path in (VENDOR / "licences").iterdir()}
    assert set(licences) == packages
    for text in licences.values():
        assert "Copyright" in text or "Apache License" in text


def test_the_page_is_small() -> None:
    """All files that a browser loads, compressed one by one as they are sent, are smaller than the limit."""
    loaded = [path for path in FILES if path.suffix in (".html", ".css", ".mjs", ".svg")]
    assert sum(len(gzip.compress(path.read_bytes(), 6)) for path in loaded) < LIMIT_BYTES


def test_the_package_contains_the_assets() -> None:
    """The assets are resources of the package, including the vendored modules."""
    package = resources.files("bayplan") / "page" / "assets"
    assert (package / "index.html").is_file()
    assert (package / "vendor" / "SHA256SUMS").is_file()


@pytest.mark.parametrize("path", MODULES, ids=names(MODULES))
def test_a_module_imports_files_that_exist(path: Path) -> None:
    """Imports are relative paths in exact case, not package names."""
    for name in re.findall(r"""(?:from|import)\s+['"]([^'"]+)['"]""", path.read_text(encoding="utf-8")):
        assert name.startswith("."), f"{name} needs a build step or an import map"
        assert (path.parent / name).resolve() in FILES


@pytest.mark.parametrize("path", OWN, ids=names(OWN))
def test_the_policy_allows_each_file(path: Path) -> None:
    """No file has an inline script or style, evaluates text, inserts markup from text or names another host."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet", text)
    assert not re.search(r"\beval\(|new Function|<style|style=|javascript:", text)
    assert not re.search(r"\bon[a-z]+=\"", text)
    assert not [url for url in re.findall(r"https?://[^\s'\"`]+", text) if "www.w3.org/2000/svg" not in url]
    assert len(text.splitlines()) <= LINES


def test_escaped_characters_equal_those_of_the_commands() -> None:
    """The pattern in text.mjs has the same ranges as document_formats.py."""
    script = (ASSETS / "text.mjs").read_text(encoding="utf-8")
    found = present(re.search(r"const UNFIT = /\[(.*)\]/gu;", script))
    pattern = re.compile("[" + found[1].encode().decode("unicode_escape") + "]")
    expected = printable_module._UNFIT
    for number in range(0x10000):
        assert bool(pattern.match(chr(number))) == bool(expected.match(chr(number))), hex(number)
