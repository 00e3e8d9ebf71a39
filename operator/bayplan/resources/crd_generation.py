"""From the models to CustomResourceDefinitions: ``python -m bayplan.resources.crd_generation``.

Owns the translation of pydantic's JSON schema into Kubernetes' structural schema, and the check that the committed
files are what the models say. It must not hold a rule about any one resource. Why files are committed: they are
reviewed, and a chart or ``kubectl apply`` uses them without Python.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from bayplan.resources.admission import OVERLAYS
from bayplan.resources.generated_files import have_drifted, write_files
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import GROUP, VERSION, CustomResource, PrinterColumn, ResourceDefinition
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX

RESOURCES: tuple[type[CustomResource], ...] = (SchedulerProfile, PluginConfig, PodGroup)
# Helm 3 shows definitions one after the other with nothing between them.
_HEADER = "---\n# Made from operator/bayplan/resources by `make crds`; edit the models there, not this file.\n"
_KEEP_DEFAULT = "x-keep-default"
_DROPPED = frozenset({"title", "additionalProperties", "$defs", _KEEP_DEFAULT, "default"})

Schema = dict[str, Any]


class _PlainDumper(yaml.SafeDumper):
    """Writes what is shared in full each time: anchors are hard to review, and not every reader takes them."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Treat nothing as shared."""
        return True


def definition_of(resource: type[CustomResource]) -> Schema:
    """Make the CustomResourceDefinition of a resource.

    Args:
        resource: The model; it has the fields ``spec`` and ``status``.

    Returns:
        The object, ready for YAML or the API server.
    """
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
                    "schema": {"openAPIV3Schema": _object_schema(resource)},
                }
            ],
        },
    }


def structural_schema(model: type[BaseModel]) -> Schema:
    """Translate a model into a structural schema.

    Args:
        model: A pydantic model, its fields of types that JSON has.

    Returns:
        An OpenAPI v3 schema without references, titles and unions with null. Defaults are left out, except those
        that the model marks with ``x-keep-default``: what is not written stays unwritten, so that a later version
        can give it another default.
    """
    root = model.model_json_schema(by_alias=True)
    return _structural(root, overlaid_definitions(root))


def overlaid_definitions(schema: Mapping[str, Any]) -> dict[str, Schema]:
    """Give the types that a model's JSON schema refers to, with the rules that the API server keeps for them.

    Args:
        schema: As pydantic makes it.

    Returns:
        Schemas by the types' names.
    """
    return {name: _merged(own, OVERLAYS.get(name, {})) for name, own in schema.get("$defs", {}).items()}


def part_of(resource: type[CustomResource], name: str) -> type[BaseModel]:
    """Give the model of a resource's ``spec`` or ``status``.

    Args:
        resource: The model.
        name: Which of its fields.

    Raises:
        TypeError: The field is no model.
    """
    annotation = resource.model_fields[name].annotation
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        raise TypeError(f"{resource.__name__}.{name} must be a model, not {annotation}; declare it as one")
    return annotation


def rendered(resource: type[CustomResource]) -> str:
    """Write the CustomResourceDefinition of a resource as a YAML file.

    Args:
        resource: The model.

    Returns:
        The file's whole text.
    """
    return _HEADER + yaml.dump(
        definition_of(resource), Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or tell how they differ.

    Args:
        arguments: The command line without the program's name; that of the process when None.

    Returns:
        The exit status: 1 when ``--check`` finds a difference.
    """
    parser = argparse.ArgumentParser(prog="crd_generation", description="Make the CustomResourceDefinitions.")
    parser.add_argument("--output", type=Path, required=True, help="directory of the files")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is not up to date")
    options = parser.parse_args(arguments)
    files = {options.output / f"{resource.definition.plural}.yaml": rendered(resource) for resource in RESOURCES}
    if not options.check:
        write_files(files)
        return 0
    drifted = have_drifted(files, "as the models say")
    if drifted:
        sys.stderr.write("The CRD files are not what the models say: run `make crds` and commit the result.\n")
    return int(drifted)


def _columns(definition: ResourceDefinition) -> list[Schema]:
    age = PrinterColumn("Age", "date", ".metadata.creationTimestamp", "Since when the object exists.")
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
    """Put a definition in the place of its reference, and the type itself in the place of its union with null.

    What stands beside a reference or union, such as the field's description, goes before what it stands for.
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
    """Name the integer's size, and leave out bounds that the size implies."""
    maximum = schema.get("maximum", INT64_MAX)
    schema["format"] = "int32" if maximum <= INT32_MAX else "int64"
    if maximum in (INT32_MAX, INT64_MAX):
        schema.pop("maximum", None)
    if schema.get("minimum", 0) < -INT32_MAX:
        del schema["minimum"]


def _merged(schema: Mapping[str, Any], overlay: Mapping[str, Any]) -> Schema:
    result = dict(schema)
    for name, value in overlay.items():
        own = result.get(name)
        result[name] = _merged(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return result


if __name__ == "__main__":
    sys.exit(main())
