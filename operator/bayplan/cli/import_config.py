"""``bayplan import-config``: converts a KubeSchedulerConfiguration to manifests and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bayplan.configuration.configuration_file import read_configuration
from bayplan.configuration.configuration_import import ImportedConfiguration, Manifest, import_configuration
from bayplan.simulation.memory_cluster import offline_scheduler
from bayplan.texts.document_formats import printable, printable_record, printable_yaml
from scheduler_core.errors import ConfigError, Problem

_WIDTH = 120
_MANIFESTS = "manifests"
_SETTINGS_NOTE = "Settings of the operator, for `bayplan run --settings FILE`."
_VALUES_NOTE = "Values of the chart, for `helm upgrade --install ... --values FILE`."


@click.command(name="import-config", short_help="Convert a KubeSchedulerConfiguration to manifests.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default=Path("-"),
    help="Directory for manifests/, settings.yaml and values.yaml; - (the default) prints the manifests, with the "
    "settings as a comment.",
)
def import_config(file: Path, output: Path) -> None:
    """Convert the KubeSchedulerConfiguration v1 in FILE to SchedulerProfiles and PluginConfigs.

    Each profile becomes one SchedulerProfile. Equal args of a plugin in several profiles become one PluginConfig.
    Fields that do not belong to a profile become settings of the operator. Notes on what needs attention are printed
    on standard error and written as comments.

    Exit codes: 0 success, 2 the file is invalid; every problem is reported.
    """
    found = import_configuration(read_configuration(file), offline_scheduler())
    if str(output) == "-":
        click.echo(_stream(found, file), nl=False)
    else:
        _write(found, file, output)
    for notice in found.notices:
        click.echo(printable_record(f"note: {notice}"), err=True)


def _stream(found: ImportedConfiguration, file: Path) -> str:
    documents = [_with_notices(manifest) for manifest in found.manifests]
    settings = [_SETTINGS_NOTE, "", *_yaml(found.settings).splitlines()]
    return _origin(file) + "---\n".join(documents) + "---\n" + _comment(settings)


def _write(found: ImportedConfiguration, file: Path, directory: Path) -> None:
    origin = _origin(file)
    chart = {name: value for name, value in found.settings.items() if name != "kubeconfig"}
    texts = {
        directory / _MANIFESTS / f"{manifest.kind.lower()}-{manifest.name}.yaml": origin + _with_notices(manifest)
        for manifest in found.manifests
    }
    texts[directory / "settings.yaml"] = origin + _comment([_SETTINGS_NOTE]) + _yaml(found.settings)
    texts[directory / "values.yaml"] = origin + _comment([_VALUES_NOTE]) + _yaml({"settings": chart})
    try:
        (directory / _MANIFESTS).mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot write to {directory} ({error}); specify another directory"
        raise ConfigError([Problem("--output", message)]) from error
    text = f"wrote {len(found.manifests)} manifests; apply them with: kubectl apply -f {directory / _MANIFESTS}"
    click.echo(printable_record(text), err=True)


def _with_notices(manifest: Manifest) -> str:
    return _comment(manifest.notices) + _yaml(manifest.document)


def _origin(file: Path) -> str:
    return _comment([f"Imported from {file.name}."])


def _comment(texts: list[str] | tuple[str, ...]) -> str:
    """Return texts as comment lines; a line break in a text must not end the comment."""
    lines = [line for text in texts for line in printable(text).split("\n")]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _yaml(document: dict[str, Any]) -> str:
    return printable_yaml(document, _WIDTH)
