"""Statements about the files of a release: checksums, provenance, and the exploitability of vulnerabilities.

The provenance is an in-toto statement with a predicate of SLSA v1. It is not signed here: `cosign` does that with the
key or identity of the publisher (docs/operate/releases.md).
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from pathlib import Path

from hack.image.image_build import Provenance
from hack.release.locked_dependencies import Document

ROOT = Path(__file__).resolve().parents[2]
BUILD_TYPE = "https://bayplan.dev/build/make-release/v1"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_LOCKS = ("uv.lock", "hack/image/build-tools.txt")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checksums(files: Iterable[Path], directory: Path) -> str:
    """Return the lines that `sha256sum --check` reads in the directory."""
    return "".join(f"{digest(path)}  {path.relative_to(directory).as_posix()}\n" for path in sorted(files))


def provenance(files: Iterable[Path], directory: Path, origin: Provenance, base: str = "") -> Document:
    """Return the statement about how the files were built.

    Args:
        files: The subjects.
        directory: Directory to which their names are relative.
        origin: Commit. The statement has no time of the build, so that a second build gives the same one.
        base: Base on which the image among the files was built; "" without an image.
    """
    commit: Document = {"digest": {"gitCommit": origin.revision.removesuffix("-dirty")}}
    if origin.source:
        commit["uri"] = f"git+{origin.source}"
    resolved = [commit, *({"uri": f"file:{name}", "digest": {"sha256": digest(ROOT / name)}} for name in _LOCKS)]
    if base:
        name, _, base_digest = base.partition("@sha256:")
        resolved.append({"uri": f"oci:{name}", **({"digest": {"sha256": base_digest}} if base_digest else {})})
    return {
        "_type": _STATEMENT,
        "subject": [
            {"name": path.relative_to(directory).as_posix(), "digest": {"sha256": digest(path)}}
            for path in sorted(files)
        ],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"source": origin.source, "revision": origin.revision, "version": origin.version},
                "internalParameters": {"SOURCE_DATE_EPOCH": str(origin.epoch)},
                "resolvedDependencies": resolved,
            },
            "runDetails": {
                "builder": {"id": "https://bayplan.dev/builder/make"},
            },
        },
    }


def vex(bill: Document, origin: Provenance) -> Document:
    """Return the CycloneDX document of the vulnerabilities in ``hack/checks/audit_allowed.toml``, with the reasons.

    Args:
        bill: The bill of materials to which it refers.
    """
    table = tomllib.loads((ROOT / "hack" / "checks" / "audit_allowed.toml").read_text(encoding="utf-8"))
    affected = {"ref": f"urn:cdx:{bill['serialNumber'].removeprefix('urn:uuid:')}/1"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": origin.created, "component": bill["metadata"]["component"]},
        "vulnerabilities": [
            {
                "id": each["id"],
                "analysis": {"state": "not_affected", "detail": each["reason"]},
                "affects": [affected],
            }
            for each in table.get("allowed", ())
        ],
    }
