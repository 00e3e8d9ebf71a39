"""Packages the chart, so that equal sources give equal bytes, which `helm package` does not.

The OCI layout has the artifact as `helm push` stores it in a registry, so that other tools can copy it there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from hack.image.image_build import Provenance
from hack.release.locked_dependencies import ReleaseError

CHART = Path(__file__).resolve().parents[2] / "charts" / "bayplan"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_IGNORED = (".bak", ".orig", ".swp", ".tgz", ".tmp", "~")


def packaged(origin: Provenance) -> bytes:
    """Return the chart with the version of the package, as an archive that Helm reads."""
    files = {f"bayplan/{path.relative_to(CHART).as_posix()}": path.read_bytes() for path in _files(CHART)}
    return archived({**files, "bayplan/Chart.yaml": chart_metadata(origin).encode()}, origin)


def archived(files: Mapping[str, bytes], origin: Provenance) -> bytes:
    """Return files as a gzip-compressed archive with fixed order, owners and times; scripts are executable."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(text), origin.epoch
            entry.mode = 0o755 if text.startswith(b"#!") else 0o644
            packed.addfile(entry, io.BytesIO(text))
    return gzip.compress(content.getvalue(), mtime=origin.epoch)


def chart_metadata(origin: Provenance) -> str:
    """Return Chart.yaml with the version of the package in the place of the two placeholders.

    Raises:
        ReleaseError: A placeholder is missing.
    """
    text = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    for line, version in (
        ("version: 0.0.0-dev\n", f"version: {origin.semantic_version}\n"),
        ("appVersion: dev\n", f'appVersion: "{origin.version}"\n'),
    ):
        if text.count(f"\n{line}") != 1:
            raise ReleaseError(f"charts/bayplan/Chart.yaml: there is no line {line.strip()!r}; restore it")
        text = text.replace(f"\n{line}", f"\n{version}")
    return text


def write_oci_layout(chart: bytes, origin: Provenance, directory: Path) -> str:
    """Write the chart as an OCI image layout; return the digest of its manifest."""
    metadata = yaml.safe_load(chart_metadata(origin))
    config = _json(metadata)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _described(_CONFIG, config),
            "layers": [_described(_CONTENT, chart)],
            "annotations": {
                "org.opencontainers.image.created": origin.created,
                "org.opencontainers.image.description": metadata["description"],
                "org.opencontainers.image.title": metadata["name"],
                "org.opencontainers.image.version": metadata["version"],
            },
        }
    )
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for blob in (config, chart, manifest):
        (blobs / hashlib.sha256(blob).hexdigest()).write_bytes(blob)
    (directory / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    named = {
        **_described(_MANIFEST, manifest),
        "annotations": {"org.opencontainers.image.ref.name": metadata["version"].replace("+", "_")},
    }
    (directory / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [named]}))
    return str(named["digest"])


def _files(directory: Path) -> list[Path]:
    """Return the files that belong to the package; the definitions are behind a link. Chart.yaml comes first."""
    found = [
        path
        for top in (directory, directory / "definitions")
        for path in top.rglob("*")
        if path.is_file() and not path.name.endswith(_IGNORED) and path.name != ".DS_Store"
    ]
    return sorted(set(found), key=lambda path: (path.name != "Chart.yaml", path.as_posix()))


def _described(media_type: str, content: bytes) -> dict[str, object]:
    return {
        "mediaType": media_type,
        "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "size": len(content),
    }


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
