"""The locked dependencies of the package with their licences, for bills of materials.

They are those of ``uv.lock`` for every supported Python, without the groups for developers.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_REVIEWED = Path(__file__).with_name("licenses.toml")
_LICENSE_FILES = ("license", "licence", "copying", "notice")

Document = dict[str, Any]


class ReleaseError(Exception):
    """A part of a release cannot be built; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """A locked package.

    Attributes:
        reference: Its reference in the bill of materials.
        license: SPDX expression.
        files: URL and SHA-256 of each of its files on the index.
        needs: References of the packages that it depends on.
    """

    reference: str
    name: str
    version: str
    license: str
    files: tuple[tuple[str, str], ...]
    needs: tuple[str, ...]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def uv_program() -> str:
    """Return the uv on PATH, or the one that `make install` puts into the checkout."""
    return shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


def exported_bill() -> Document:
    """Return uv's CycloneDX document of the lock, whose serial number and time differ each time.

    Raises:
        ReleaseError: uv fails.
    """
    command = [uv_program(), "export", "--frozen", "--no-default-groups", "--format=cyclonedx1.5", "--quiet"]
    command += ["--preview-features=sbom-export"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ReleaseError(f"uv export: {answer.stderr.strip()}; run `make install`")
    document: Document = json.loads(answer.stdout)
    return document


def dependencies(bill: Document) -> tuple[Dependency, ...]:
    """Return the packages of uv's document, with licences.

    Raises:
        ReleaseError: The licence of a package is unknown.
    """
    needs = {each["ref"]: tuple(each.get("dependsOn", ())) for each in bill["dependencies"]}
    return tuple(
        Dependency(
            reference=each["bom-ref"],
            name=each["name"],
            version=each["version"],
            license=license_of(each["name"]),
            files=tuple((one["url"], one["hashes"][0]["content"]) for one in each["externalReferences"]),
            needs=needs.get(each["bom-ref"], ()),
        )
        for each in bill["components"]
    )


def license_of(name: str) -> str:
    """Return the SPDX expression of a package: that of its metadata, else the reviewed one.

    Raises:
        ReleaseError: Neither exists.
    """
    reviewed: dict[str, str] = tomllib.loads(_REVIEWED.read_text(encoding="utf-8"))["expressions"]
    try:
        metadata = importlib.metadata.metadata(name)
        expressions = metadata.get_all("License-Expression") or [""]
        expression = expressions[0]
    except importlib.metadata.PackageNotFoundError:
        expression = ""
    if not expression and name not in reviewed:
        raise ReleaseError(
            f"{name} has no licence expression in its metadata; read its licence, and add it to {_REVIEWED.name}"
        )
    return str(expression or reviewed[name])


def license_texts(packages: tuple[Dependency, ...]) -> str:
    """Return the licence texts of all packages that are installed, for the file of third-party licences."""
    parts = ["Licences of the packages that Bayplan depends on.\n"]
    for each in sorted(packages, key=lambda one: (one.name, one.version)):
        parts.append(f"\n{'=' * 100}\n{each.name} {each.version}: {each.license}\n{'=' * 100}\n")
        parts += [f"\n--- {path}\n\n{text.strip()}\n" for path, text in _installed_texts(each.name)]
    return "".join(parts)


def _installed_texts(name: str) -> Iterator[tuple[str, str]]:
    try:
        files = importlib.metadata.files(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for path in sorted(files):
        if path.name.lower().startswith(_LICENSE_FILES) and ".dist-info" in str(path):
            yield path.name, path.read_text(encoding="utf-8")
