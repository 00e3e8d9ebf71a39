"""``bayplan import-config``: manifests and settings from a KubeSchedulerConfiguration.

Owns the command's options, the files that it writes and their comments. It must not know which field goes where.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bayplan.configuration_import import ImportedConfiguration, Manifest, import_configuration
from bayplan.kube_configuration import read_configuration
from bayplan.printable import printable, printable_record, printable_yaml
from scheduler_core.errors import ConfigError, Problem

_WIDTH = 120
_MANIFESTS = "manifests"
_SETTINGS_NOTE = "Settings of the operator, for `bayplan run --settings FILE`."
_VALUES_NOTE = "Values of the chart, for `helm upgrade --install ... --values FILE`."


@click.command(name="import-config", short_help="Turn a KubeSchedulerConfiguration into manifests.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    default=Path("-"),
    help="Directory that takes manifests/, settings.yaml and values.yaml; - (the default) prints the manifests, with "
    "the settings as a comment.",
)
def import_config(file: Path, output: Path) -> None:
    """Turn the KubeSchedulerConfiguration v1 in FILE into SchedulerProfiles and PluginConfigs.

    Each profile becomes one SchedulerProfile. Args that several profiles give alike to a plugin become one
    PluginConfig. What is no profile's becomes settings of the operator. What needs attention is told on standard error
    and in comments.

    Exit codes: 0 done, 2 the file is not valid; every problem is told.
    """
    found = import_configuration(read_configuration(file))
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
        message = f"{directory} cannot be written ({error}); choose another directory"
        raise ConfigError([Problem("--output", message)]) from error
    told = f"wrote {len(found.manifests)} manifests; apply them with: kubectl apply -f {directory / _MANIFESTS}"
    click.echo(printable_record(told), err=True)


def _with_notices(manifest: Manifest) -> str:
    return _comment(manifest.notices) + _yaml(manifest.document)


def _origin(file: Path) -> str:
    return _comment([f"Imported from {file.name}."])


def _comment(texts: list[str] | tuple[str, ...]) -> str:
    """Comment every line: what follows a line break in a text of others would be part of the manifest."""
    lines = [line for text in texts for line in printable(text).split("\n")]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def _yaml(document: dict[str, Any]) -> str:
    return printable_yaml(document, _WIDTH)
