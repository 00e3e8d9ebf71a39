"""Writes the chart as plain manifests, which are also a Kustomize base: ``make manifests``.

For clusters without Helm: ``kubectl apply --server-side -k DIRECTORY``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane import binaries
from hack.image.engines import ImageError
from hack.image.image_build import provenance
from hack.release.chart_package import packaged
from hack.release.locked_dependencies import ReleaseError

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "bayplan"

Manifest = dict[str, Any]

_HEADER = "# Rendered from charts/bayplan by `make manifests`.\n"
_OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart", "helm.sh/resource-policy")


def render(helm: Path, chart: Path, values: Path | None = None) -> list[Manifest]:
    """Render the chart for a cluster that serves Bayplan's kinds, without what only Helm uses.

    Args:
        chart: Directory or archive of the chart.
        values: File of values; None for the defaults.

    Raises:
        RuntimeError: The chart rejects the values.
    """
    command = [str(helm), "template", "bayplan", str(chart), f"--namespace={NAMESPACE}"]
    command += ["--skip-tests", "--api-versions=bayplan.dev/v1alpha1/SchedulerProfile"]
    command += [f"--values={values}"] if values is not None else []
    with tempfile.TemporaryDirectory() as home:
        answer = subprocess.run(command, capture_output=True, text=True, env={"HOME": home}, check=False)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr.strip())
    return [_without_helm(one) for one in yaml.safe_load_all(answer.stdout) if one]


def files(manifests: Iterable[Manifest]) -> dict[str, str]:
    """Return the texts of the files by name: the namespace, the definitions, the rest, and the Kustomization."""
    definitions: list[Manifest] = []
    others: list[Manifest] = []
    for one in manifests:
        (definitions if one["kind"] == "CustomResourceDefinition" else others).append(one)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    written = {
        "namespace.yaml": _text([namespace]),
        "definitions.yaml": _text(definitions),
        "bayplan.yaml": _text(others),
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(written),
    }
    return {**written, "kustomization.yaml": _text([kustomization])}


def main(arguments: list[str] | None = None) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="manifests", description="Render the chart as plain manifests.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "manifests", help="directory of the files")
    parser.add_argument("--values", type=Path, help="file of values of the chart")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as directory:
            chart = Path(directory) / "chart.tgz"
            chart.write_bytes(packaged(provenance()))
            manifests = render(binaries.resolve(["helm"])["helm"], chart, options.values)
    except (RuntimeError, ImageError, ReleaseError, binaries.MissingBinary) as problem:
        sys.stderr.write(f"manifests: {problem}\n")
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    for name, text in files(manifests).items():
        (options.output / name).write_text(text, encoding="utf-8")
    print(options.output)
    return 0


def _without_helm(manifest: Manifest) -> Manifest:
    """Remove labels and annotations by which Helm manages an object, also from a pod template."""
    metadata = [manifest["metadata"]]
    if "template" in manifest.get("spec", {}):
        metadata.append(manifest["spec"]["template"]["metadata"])
    for each in metadata:
        for part in ("labels", "annotations"):
            left = {name: value for name, value in each.pop(part, {}).items() if name not in _OF_HELM}
            if left:
                each[part] = left
    return manifest


def _text(manifests: Iterable[Manifest]) -> str:
    return _HEADER + yaml.safe_dump_all(manifests, sort_keys=False, explicit_start=True, width=110)


if __name__ == "__main__":
    sys.exit(main())
