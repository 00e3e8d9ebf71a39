"""Generates CustomResourceDefinitions from the models: ``python -m bayplan.resources.crd_generation``.

Translates pydantic's JSON schema to Kubernetes' structural schema, and checks that the committed files are up to date.
The files are committed so that they are reviewed, and so that a chart or ``kubectl apply`` can use them without Python.
"""

import argparse
import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from bayplan.resources.crd_rules import OVERLAYS
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource, PrinterColumn, ResourceDefinition
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.texts.yaml_documents import PlainDumper
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX

RESOURCES: tuple[type[CustomResource], ...] = (
    SchedulerProfile,
    PluginConfig,
    PodGroup,
    NodeReservation,
    RebalancePlan,
)
# Helm 3 prints definitions one after the other without a separator.
_HEADER = "---\n# Generated from operator/bayplan/resources by `make crds`; edit the models there, not this file.\n"
_KEEP_DEFAULT = "x-keep-default"
_DROPPED = frozenset({"title", "additionalProperties", "$defs", _KEEP_DEFAULT, "default"})

Schema = dict[str, Any]


def definition_of(resource: type[CustomResource]) -> Schema:
    definition = resource.definition
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{definition.plural}.{GROUP}",
            "labels": {"app.kubernetes.io/name": "bayplan", "app.kubernetes.io/part-of": "bayplan"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if definition.namespaced else "Cluster",
            "names": {
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "singular": definition.kind.lower(),
                "shortNames": [definition.short_name],
                "categories": ["bayplan"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(definition),
                    "selectableFields": [{"jsonPath": path} for path in definition.selectable],
                    "schema": {"openAPIV3Schema": _object_schema(resource)},
                }
            ],
        },
    }


def structural_schema(model: type[BaseModel]) -> Schema:
    """Translate a model to a structural schema.

    Returns:
        An OpenAPI v3 schema without references, titles and unions with null. Defaults are left out, except those
        marked with ``x-keep-default``: a field that is not written stays unset, so that a later version can change
        its default.
    """
    root = model.model_json_schema(by_alias=True)
    return _structural(_merged(root, OVERLAYS.get(model.__name__, {})), overlaid_definitions(root))


def overlaid_definitions(schema: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the types that a model's JSON schema refers to, with the API server's additional rules."""
    return {name: _merged(own, OVERLAYS.get(name, {})) for name, own in schema.get("$defs", {}).items()}


def part_of(resource: type[CustomResource], name: str) -> type[BaseModel]:
    """Return the model of a resource's ``spec`` or ``status``; raises TypeError if the field is not a model."""
    annotation = resource.model_fields[name].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        raise TypeError(f"{resource.__name__}.{name} must be a model, not {annotation}; declare it as one")
    return annotation


def rendered(resource: type[CustomResource]) -> str:
    return _HEADER + yaml.dump(
        definition_of(resource), Dumper=PlainDumper, sort_keys=False, width=110, allow_unicode=True
    )


def write_files(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def have_drifted(files: Mapping[Path, str], source: str) -> bool:
    """Return whether committed files differ from the generated ones; print the differences."""
    drifted = False
    for path, text in files.items():
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if committed != text:
            drifted = True
            lines = (committed.splitlines(keepends=True), text.splitlines(keepends=True))
            sys.stdout.writelines(difflib.unified_diff(*lines, str(path), source))
    return drifted


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or print how they differ."""
    parser = argparse.ArgumentParser(prog="crd_generation", description="Generate the CustomResourceDefinitions.")
    parser.add_argument("--output", type=Path, required=True, help="directory of the files")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not up to date")
    options = parser.parse_args(arguments)
    files = {options.output / f"{resource.definition.plural}.yaml": rendered(resource) for resource in RESOURCES}
    if not options.check:
        write_files(files)
        return 0
    drifted = have_drifted(files, "generated from the models")
    if drifted:
        sys.stderr.write("The CRD files are not up to date: run `make crds` and commit the result.\n")
    return int(drifted)


def _columns(definition: ResourceDefinition) -> list[Schema]:
    age = PrinterColumn("Age", "date", ".metadata.creationTimestamp", "Creation time of the object.")
    narrow = [column for column in definition.columns if not column.wide]
    wide = [column for column in definition.columns if column.wide]
    return [
        {
            "name": column.name,
            "type": column.type,
            "jsonPath": column.json_path,
            "description": column.description,
            **({"priority": 1} if column.wide else {}),
        }
        for column in (*narrow, age, *wide)
    ]


def _object_schema(resource: type[CustomResource]) -> Schema:
    definition = resource.definition
    schema: Schema = {
        "type": "object",
        "description": definition.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Version of the object's schema: {GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"Kind of the object: {definition.kind}."},
            "metadata": {"type": "object"},
            "spec": structural_schema(part_of(resource, "spec")),
            "status": structural_schema(part_of(resource, "status")),
        },
    }
    if definition.rules:
        schema["x-kubernetes-validations"] = [
            {"rule": each.rule, "message": each.message, "fieldPath": each.field_path} for each in definition.rules
        ]
    return schema


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    flat = _flattened(schema, definitions)
    result: Schema = {name: value for name, value in flat.items() if name not in _DROPPED}
    if flat.get(_KEEP_DEFAULT):
        result["default"] = flat["default"]
    if "properties" in result:
        result["properties"] = {name: _structural(value, definitions) for name, value in result["properties"].items()}
    if "items" in result:
        result["items"] = _structural(result["items"], definitions)
    extra = flat.get("additionalProperties")
    if isinstance(extra, Mapping):
        result["additionalProperties"] = _structural(extra, definitions)
    if result.get("type") == "integer":
        _bound_integer(result)
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    return result


def _flattened(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    """Replace a reference by its definition, and a union with null by its other type.

    Keywords beside the reference or union, such as the field's description, take precedence.
    """
    own = dict(schema)
    if "$ref" in own:
        target = definitions[own.pop("$ref").rpartition("/")[2]]
        return {**_flattened(target, definitions), **own}
    if "anyOf" in own:
        choices = [choice for choice in own.pop("anyOf") if choice.get("type") != "null"]
        if len(choices) != 1:
            raise TypeError(f"a field may have one type or null, not {choices}; give it an explicit schema")
        return {**_flattened(choices[0], definitions), **own}
    return own


def _bound_integer(schema: Schema) -> None:
    """Set the format, and remove 64-bit bounds; API servers before 1.36 do not enforce the format int32."""
    maximum = schema.get("maximum", INT64_MAX)
    schema["format"] = "int32" if maximum <= INT32_MAX else "int64"
    if maximum == INT64_MAX:
        schema.pop("maximum", None)
    if schema.get("minimum", 0) < -INT32_MAX - 1:
        del schema["minimum"]


def _merged(schema: Mapping[str, Any], overlay: Mapping[str, Any]) -> Schema:
    result = dict(schema)
    for name, value in overlay.items():
        own = result.get(name)
        result[name] = _merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return result


if __name__ == "__main__":
    sys.exit(main())
