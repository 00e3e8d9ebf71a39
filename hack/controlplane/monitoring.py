"""Finds the CustomResourceDefinitions of the Prometheus operator that the chart's objects need.

They come out of a Go module, because the module proxy also provides the rest of the control plane and a hash proves
that the content is what was reviewed. The copies are in the per-user cache.
"""

import shutil
import tempfile
from pathlib import Path

from hack.controlplane.binaries import MissingBinary, user_cache
from hack.controlplane.module_sources import ModuleSourceError, download, go_environment

_MODULE = "github.com/prometheus-operator/prometheus-operator"
_VERSION = "v0.85.0"
_SUM = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
_DIRECTORY = "example/prometheus-operator-crd"
DEFINITIONS = ("monitoring.coreos.com_prometheusrules.yaml", "monitoring.coreos.com_servicemonitors.yaml")
"""One file for each definition."""

_REMEDY = "Install Go 1.26 or newer (https://go.dev/dl) with a reachable module proxy."


def definitions() -> Path:
    """Find the definitions, downloading them the first time; return a directory that holds :data:`DEFINITIONS`.

    Raises:
        MissingBinary: They are not in the cache and cannot be downloaded.
    """
    base = user_cache() / "controlplane"
    directory = base / f"prometheus-operator-{_VERSION}"
    if all((directory / name).is_file() for name in DEFINITIONS):
        return directory
    source = _download() / _DIRECTORY
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".prometheus-operator-", dir=base) as scratch:
        for name in DEFINITIONS:
            # A module's files are read-only; the copies are the user's own.
            shutil.copyfile(source / name, Path(scratch) / name)
        directory.mkdir(exist_ok=True)
        for name in DEFINITIONS:
            (Path(scratch) / name).replace(directory / name)
    return directory


def _download() -> Path:
    """Download the module; return its directory in Go's cache. Another hash is an error."""
    try:
        with tempfile.TemporaryDirectory() as elsewhere:
            module = download(f"{_MODULE}@{_VERSION}", Path(elsewhere), go_environment("mod"))
    except ModuleSourceError as error:
        raise MissingBinary(DEFINITIONS, [str(error)], _REMEDY) from error
    if module["Sum"] != _SUM:
        reason = f"{_MODULE}@{_VERSION} has the hash {module['Sum']}, and {_SUM} was reviewed"
        raise MissingBinary(DEFINITIONS, [reason], "Check GOPROXY to find out which proxy changed it.")
    return Path(module["Dir"])
