"""Builds the plugin of kubectl for krew: an archive with a launcher, and the manifest that names its checksum.

The launcher runs the installed command or, by ``uvx`` or ``pipx``, the package of the same version: an archive with the
dependencies would be one for each architecture, since some have compiled parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import yaml

from hack.image.image_build import Provenance

_HOMEPAGE = "https://bayplan.dev"
COMMAND = "kubectl-bayplan"
_LAUNCHER = """\
#!/bin/sh
# kubectl bayplan: runs the installed command, or the package of version {version} by uvx or pipx.
for each in bayplan uvx pipx; do
  command -v "$each" >/dev/null 2>&1 || continue
  case $each in
    bayplan) exec bayplan "$@" ;;
    uvx) exec uvx --from "bayplan=={version}" bayplan "$@" ;;
    pipx) exec pipx run --spec "bayplan=={version}" bayplan "$@" ;;
  esac
done
echo "kubectl bayplan: there is no bayplan, uvx or pipx in PATH; install one: pip install bayplan=={version}" >&2
exit 127
"""
_DESCRIPTION = """\
Shows the state of a Bayplan operator, explains why pods and gangs wait, compares scheduler profiles, rolls them back,
and validates manifests. Without a port-forward of the user: the leader is reached through the API server.
"""
_CAVEATS = """\
The plugin runs the command bayplan, or the package of its version by uvx or pipx; one of the three must be in PATH.
"""


def archive_files(origin: Provenance, license_text: bytes) -> dict[str, bytes]:
    """Return the files of the archive by name; krew demands the licence."""
    return {COMMAND: _LAUNCHER.format(version=origin.version).encode(), "LICENSE": license_text}


def manifest(origin: Provenance, archive: bytes, name: str) -> str:
    """Return the manifest for krew's index.

    Args:
        archive: The archive, as it is published.
        name: Its file name.
    """
    # Not the URL of the checkout's remote: two builds of one commit must be equal.
    uri = f"{_HOMEPAGE}/releases/v{origin.version}/{name}"
    platforms = [_platform(system, uri, archive) for system in _SYSTEMS]
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "bayplan"},
        "spec": {
            "version": f"v{origin.semantic_version}",
            "homepage": _HOMEPAGE,
            "shortDescription": "Explain and manage scheduling by Bayplan",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(document, sort_keys=False)


_SYSTEMS = ("linux", "darwin")


def _platform(system: str, uri: str, archive: bytes) -> Mapping[str, object]:
    return {
        "selector": {"matchLabels": {"os": system}},
        "uri": uri,
        "sha256": hashlib.sha256(archive).hexdigest(),
        "bin": COMMAND,
        "files": [{"from": COMMAND, "to": "."}, {"from": "LICENSE", "to": "."}],
    }
