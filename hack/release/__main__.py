"""`make release`: builds the files of a release, with bills of materials and statements about them.

Every file but the image is built from the commit alone: a second build gives the same bytes.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hack.controlplane import binaries
from hack.image.__main__ import main as build_image
from hack.image.engines import ImageError
from hack.image.image_build import Provenance, pinned_base, provenance, read_archive
from hack.release import krew_plugin, manifests, statements
from hack.release.bills_of_materials import as_text, cyclonedx, spdx
from hack.release.chart_package import archived, packaged, write_oci_layout
from hack.release.locked_dependencies import (
    ReleaseError,
    dependencies,
    exported_bill,
    license_texts,
    uv_program,
)

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Build the files of a release."""
    parser = argparse.ArgumentParser(prog="python -m hack.release", description=main.__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "release", help="directory, which is emptied")
    parser.add_argument("--no-image", action="store_true", help="leave the image out")
    options = parser.parse_args(arguments)
    try:
        origin = provenance()
        tag = _tag()
        check_version(origin, tag)
        shutil.rmtree(options.output, ignore_errors=True)
        options.output.mkdir(parents=True)
        build(origin, options.output)
        base = "" if options.no_image else _build_image(origin, options.output)
        check_base(base, tag)
        _write_statements(origin, options.output, base)
    except (ReleaseError, ImageError, binaries.MissingBinary) as problem:
        sys.stderr.write(f"release: {problem}\n")
        return 1
    for path in sorted(options.output.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    return 0


def check_version(origin: Provenance, tag: str) -> None:
    """Check that a tagged commit gives the version of its tag.

    Args:
        tag: Tag of the commit; "" for a development build.

    Raises:
        ReleaseError: The checkout differs from the tag, or the commit has several tags of versions.
    """
    if not tag:
        sys.stderr.write(f"release: no tag at this commit: a development build of {origin.version}\n")
    elif origin.revision.endswith("-dirty"):
        raise ReleaseError(f"the checkout differs from {tag}; commit or remove the changes")
    elif tag != f"v{origin.version}":
        raise ReleaseError(
            f"the tag {tag} gives the version {origin.version}; tag a commit once, as vMAJOR.MINOR.PATCH"
        )


def check_base(base: str, tag: str) -> None:
    """Check that the image of a release was built on the pinned base.

    Args:
        base: Base of the image; "" without an image.
        tag: Tag of the commit; "" for a development build.

    Raises:
        ReleaseError: It was built on another base.
    """
    pinned = pinned_base()
    if tag and base not in ("", pinned):
        raise ReleaseError(
            f"the image was built on {base}, not on {pinned}; use a network with its registry, or IMAGE=0"
        )


def build(origin: Provenance, directory: Path) -> None:
    """Build everything that is the same in each build.

    Raises:
        ReleaseError: A part cannot be built.
        MissingBinary: Helm is not found.
    """
    build_distributions(origin, directory)
    chart = packaged(origin)
    archive = directory / f"bayplan-{origin.semantic_version}.tgz"
    archive.write_bytes(chart)
    layout = directory / "chart-oci"
    write_oci_layout(chart, origin, layout)
    _pack(directory / f"bayplan-chart-{origin.semantic_version}.oci.tar.gz", _read(layout), origin)
    shutil.rmtree(layout)
    plain = manifests.files(manifests.render(binaries.resolve(["helm"])["helm"], archive))
    texts = {name: text.encode() for name, text in plain.items()}
    _pack(directory / f"bayplan-manifests-{origin.version}.tar.gz", texts, origin)
    write_krew_plugin(origin, directory)
    write_bills(origin, directory)


def write_krew_plugin(origin: Provenance, directory: Path) -> None:
    """Write the archive of kubectl's plugin, and its manifest for krew."""
    archive = directory / f"{krew_plugin.COMMAND}-{origin.version}.tar.gz"
    _pack(archive, krew_plugin.archive_files(origin, (ROOT / "LICENSE").read_bytes()), origin)
    text = krew_plugin.manifest(origin, archive.read_bytes(), archive.name)
    (directory / f"{krew_plugin.COMMAND}-{origin.version}.krew.yaml").write_text(text, encoding="utf-8")


def build_distributions(origin: Provenance, directory: Path) -> None:
    """Build the wheel and the source distribution.

    Raises:
        ReleaseError: The build fails.
    """
    command = [uv_program(), "build", "--quiet", f"--out-dir={directory}"]
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(origin.epoch),
        "SETUPTOOLS_SCM_PRETEND_VERSION": origin.version,
    }
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise ReleaseError(f"uv build: {answer.stderr.strip()}")
    (directory / ".gitignore").unlink(missing_ok=True)


def write_bills(origin: Provenance, directory: Path) -> None:
    """Write the bills of materials, the exploitability of vulnerabilities, and the licences of the dependencies.

    Raises:
        ReleaseError: The licence of a package is unknown.
    """
    exported = exported_bill()
    packages = dependencies(exported)
    root = exported["metadata"]["component"]["bom-ref"]
    needs = next(tuple(each.get("dependsOn", ())) for each in exported["dependencies"] if each["ref"] == root)
    bill = cyclonedx(exported, packages, origin)
    name = f"bayplan-{origin.version}"
    (directory / f"{name}.cdx.json").write_text(as_text(bill))
    (directory / f"{name}.spdx.json").write_text(as_text(spdx(packages, origin, needs)))
    (directory / f"{name}.vex.cdx.json").write_text(as_text(statements.vex(bill, origin)))
    (directory / f"{name}.licenses.txt").write_text(license_texts(packages), encoding="utf-8")


def _write_statements(origin: Provenance, directory: Path, base: str) -> None:
    files = [path for path in directory.iterdir() if path.is_file()]
    statement = directory / f"bayplan-{origin.version}.intoto.json"
    statement.write_text(as_text(statements.provenance(files, directory, origin, base)))
    (directory / "SHA256SUMS").write_text(statements.checksums([*files, statement], directory))


def _build_image(origin: Provenance, directory: Path) -> str:
    """Build the image for this machine's architecture; return the name of its base.

    Raises:
        ReleaseError: The build fails.
    """
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    archive = directory / f"bayplan-image-{origin.version}-{architecture}.tar"
    if build_image([f"--archive={archive}"]) != 0:
        raise ReleaseError("the image cannot be built; see the message above, or use --no-image")
    sys.stderr.write(f"release: image for {architecture} only; build the others on machines of their architecture\n")
    labels: dict[str, str] = read_archive(archive).config["config"]["Labels"]
    return labels["org.opencontainers.image.base.name"]


def _read(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def _pack(archive: Path, files: Mapping[str, bytes], origin: Provenance) -> None:
    archive.write_bytes(archived(dict(sorted(files.items())), origin))


def _tag() -> str:
    """Return the version tag of the checked-out commit; "" for none."""
    command = ["git", "tag", "--points-at=HEAD", "--list", "v[0-9]*"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.split()[0] if answer.returncode == 0 and answer.stdout.split() else ""


if __name__ == "__main__":
    sys.exit(main())
