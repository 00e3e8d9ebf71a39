"""Builds the image of a checkout, and reads the result.

The time of the image is the commit's, so one commit always gives the same image; `SOURCE_DATE_EPOCH` overrides it
(https://reproducible-builds.org/specs/source-date-epoch). Only a label contains it: files and layers have one fixed
time for all commits, so an unchanged layer is reused.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import Version

from hack.image.debian_base import base_archive, base_name, registry_reached
from hack.image.engines import Engine, ImageError, cache_dir, disk_bytes
from hack.image.package_index import secret_flags
from hack.image.runtime_root import FIXED_TIME

ROOT = Path(__file__).resolve().parents[2]
_BASE_ARGUMENT = re.compile(r"^ARG BASE_IMAGE=(\S+)$", re.MULTILINE)

_STORAGE_BYTES = 4 * 2**30  # limit for cached layers; above it, all are deleted


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of an image.

    Args:
        version: Version of the package, as Python writes it: that of the tag, or a development version after it.
        revision: Commit, with "-dirty" when the checkout differs from it; "unknown" outside of a checkout.
        epoch: Seconds since 1970 of the commit.
        source: URL of the repository, without credentials; "" when it has none.
    """

    version: str
    revision: str
    epoch: int
    source: str

    @property
    def semantic_version(self) -> str:
        """Version as Helm and krew need it (semver.org): 0.1.1.dev5+g1a2b3c4 is 0.1.1-dev.5+g1a2b3c4."""
        version = Version(self.version)
        release = ".".join(str(part) for part in (*version.release, 0, 0)[:3])
        stage = "" if version.dev is None else f"-dev.{version.dev}"
        return release + stage + (f"+{version.local}" if version.local else "")

    @property
    def image_tag(self) -> str:
        """Version as the tag of an image, which has no plus sign; the chart writes it in the same way."""
        return self.version.replace("+", "_")

    @property
    def created(self) -> str:
        """Time of the commit in RFC 3339 format."""
        return datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Image:
    """An image in an archive.

    Args:
        archive: The archive, in docker's format.
        config: The image's configuration, as the OCI image specification names its fields.
        identity: Digest of the configuration, which covers the layers' content: what engines call the image's id.
        layer_bytes: Size of each layer, uncompressed.
    """

    archive: Path
    config: dict[str, Any]
    identity: str
    layer_bytes: tuple[int, ...]


def provenance(environment: Mapping[str, str] = os.environ) -> Provenance:
    """Read version, commit, time and origin of this checkout.

    Raises:
        ImageError: `SOURCE_DATE_EPOCH` is not a time.
    """
    revision = _git("rev-parse", "HEAD")
    if revision and _git("status", "--porcelain", "--untracked-files=no"):
        revision += "-dirty"
    epoch = environment.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or "0"
    if not epoch.isdecimal():
        raise ImageError(f"SOURCE_DATE_EPOCH is {epoch!r}: it must be whole seconds since 1970")
    return Provenance(
        package_version(), revision or "unknown", int(epoch), _without_password(_git("remote", "get-url", "origin"))
    )


def package_version() -> str:
    """Return the version that a build of the package has in this checkout.

    Raises:
        ImageError: The commit has no version.
    """
    command = [sys.executable, "-m", "hatchling", "metadata", "version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if answer.returncode != 0:
        raise ImageError(f"the version cannot be determined: {answer.stderr.strip()}")
    return answer.stdout.strip()


def pinned_base() -> str:
    """Return the default base image of the Dockerfile, with its digest.

    Raises:
        ImageError: The Dockerfile names none.
    """
    found = _BASE_ARGUMENT.search((ROOT / "Dockerfile").read_text())
    if found is None:
        raise ImageError("Dockerfile: ARG BASE_IMAGE has no default; set NAME@sha256:DIGEST")
    return found[1]


def choose_base(engine: Engine) -> str:
    """Return `BASE_IMAGE` of the environment, else the pinned base if its registry is reached, else one that is built.

    Raises:
        ImageError: There is no registry, and no base can be built.
    """
    given = os.environ.get("BASE_IMAGE")
    if given:
        return given
    pinned = pinned_base()
    if registry_reached(pinned):
        return pinned
    name = base_name()
    archive = base_archive(cache_dir())
    if not engine.has(name):
        engine.import_tree(archive, name)
    return name


def build(
    engine: Engine, tag: str, origin: Provenance, *, context: Path = ROOT, cached: bool = True, extras: str = ""
) -> None:
    """Build the image into the engine's storage.

    Args:
        context: The checkout, or a copy of what `.dockerignore` lets through.
        cached: Start from layers of earlier builds.
        extras: Extra of the package to install, such as "otel".

    Raises:
        ImageError: The build failed; the message ends with the output of the engine.
    """
    _bound_storage(engine)
    base = choose_base(engine)
    arguments = {"BASE_IMAGE": base, "SOURCE_DATE_EPOCH": str(FIXED_TIME)}
    if extras:
        arguments["EXTRAS"] = extras
    command = engine.build_command(cached=cached)
    if engine.name != "docker":
        command.append(f"--timestamp={FIXED_TIME}")
    command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    with tempfile.TemporaryDirectory(prefix="bayplan-image-") as secrets:
        command += secret_flags(Path(secrets))
        recipe = Path(secrets) / "Dockerfile"
        recipe.write_text(_with_origin((context / "Dockerfile").read_text(), origin))
        engine.run(*command, f"--tag={tag}", f"--file={recipe}", ".", cwd=context)


def read_archive(archive: Path) -> Image:
    """Read an archive in docker's format.

    Raises:
        ImageError: The file is not an archive of one image.
    """
    try:
        with tarfile.open(archive) as tar:
            (entry,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]  # a regular file
            config = json.load(tar.extractfile(entry["Config"]))  # type: ignore[arg-type]  # a regular file
            sizes = tuple(tar.getmember(layer).size for layer in entry["Layers"])
    except (tarfile.TarError, KeyError, ValueError) as problem:
        raise ImageError(f"{archive} is no archive of one image ({problem}): build it with `make image`") from problem
    identity = Path(entry["Config"]).name.removesuffix(".json")
    return Image(archive, config, identity, sizes)


def _with_origin(recipe: str, origin: Provenance) -> str:
    """Write the origin into the labels of a Dockerfile, replacing their template variables.

    They are not build arguments, because buildah reuses the label of an earlier build if only arguments differ.

    Raises:
        ImageError: A template variable is missing; the image would have no origin.
    """
    values = {
        "VERSION": origin.version,
        "REVISION": origin.revision,
        "CREATED": origin.created,
        "SOURCE": origin.source,
    }
    for name, value in values.items():
        variable = f"${{{name}}}"
        if variable not in recipe:
            raise ImageError(f"the Dockerfile has no {variable}: add it to the label of the image that records it")
        recipe = recipe.replace(variable, value)
    return recipe


def _bound_storage(engine: Engine) -> None:
    """Delete a storage that has grown too large; docker limits its own."""
    roots = [Path(flag.removeprefix("--root=")) for flag in engine.storage if flag.startswith("--root=")]
    if roots and disk_bytes(roots) > _STORAGE_BYTES:
        engine.run("rmi", "--all", "--force")


def _git(*arguments: str) -> str:
    outcome = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    return outcome.stdout.strip() if outcome.returncode == 0 else ""


def _without_password(url: str) -> str:
    """Return a repository's URL without credentials; "" for one that only this machine can reach."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    port = f":{parts.port}" if parts.port else ""
    return urllib.parse.urlunsplit((parts.scheme, parts.hostname + port, parts.path, "", ""))
