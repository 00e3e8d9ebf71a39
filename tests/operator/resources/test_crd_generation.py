"""Tests of the generated CRDs: structural, described and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from bayplan.resources import scheduler_profile
from bayplan.resources.crd_generation import RESOURCES, definition_of, main, rendered, structural_schema
from bayplan.resources.crd_rules import OVERLAYS, matches
from bayplan.resources.resource_model import CustomResource
from pydantic import BaseModel, Field

from scheduler_core.config import gang_owners, plugin_args, plugin_set_types, profile_config
from tests.support.invalid_manifests import INVALID_MANIFESTS, InvalidManifest
from tests.support.problems import paths_in

Schema = dict[str, Any]
each_resource = pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.definition.plural)


def root_of(resource: type[CustomResource]) -> Schema:
    (version,) = definition_of(resource)["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every schema within a schema, with its path, except the API server's ``metadata``."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        if (path, name) != ("", "metadata"):
            yield from walk(inner, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


@each_resource
def test_every_field_is_described(resource: type[CustomResource]) -> None:
    """Every field has a description for ``kubectl explain``."""
    undescribed = [
        f"{path}.{name}"
        for path, schema in walk(root_of(resource))
        for name, inner in schema.get("properties", {}).items()
        if (path, name) != ("", "metadata") and not inner.get("description", "").endswith(".")
    ]
    assert undescribed == []


@each_resource
def test_descriptions_are_not_python(resource: type[CustomResource]) -> None:
    """Descriptions have field names in camelCase and no docstring markup."""
    python = [
        path
        for path, schema in walk(root_of(resource))
        if "``" in schema.get("description", "") or "_" in schema.get("description", "")
    ]
    assert python == []


@each_resource
def test_schemas_are_structural(resource: type[CustomResource]) -> None:
    """Every schema has a type and no keyword that structural schemas forbid."""
    forbidden = {"$ref", "$defs", "definitions", "anyOf", "allOf", "oneOf", "const", "title", "exclusiveMinimum"}
    violations = [
        path
        for path, schema in walk(root_of(resource))
        if ("type" not in schema and not schema.get("x-kubernetes-int-or-string")) or forbidden & schema.keys()
    ]
    assert violations == []


@each_resource
def test_everything_is_bounded(resource: type[CustomResource]) -> None:
    """Every string, list, map and number has a bound, so that the cost of CEL rules can be estimated."""
    unbounded = []
    for path, schema in walk(root_of(resource)):
        match schema.get("type"):
            case "string":
                bounded = "maxLength" in schema or "enum" in schema or schema.get("format") == "date-time"
                bounded = bounded or path in (".apiVersion", ".kind")
            case "array":
                bounded = "maxItems" in schema
            case "object" if "properties" not in schema:
                bounded = "maxProperties" in schema
            case "integer":
                bounded = "minimum" in schema or path.endswith(".extenders[].weight")
            case _:
                bounded = True
        if not bounded:
            unbounded.append(path)
    assert unbounded == []


@each_resource
def test_lists_say_how_they_merge(resource: type[CustomResource]) -> None:
    """Every list has a merge strategy for server-side apply, and the keys of a map list are required fields."""
    for path, schema in walk(root_of(resource)):
        if schema.get("type") != "array":
            continue
        kind = schema.get("x-kubernetes-list-type")
        assert kind in {"atomic", "set", "map"}, path
        if kind == "map":
            assert set(schema["x-kubernetes-list-map-keys"]) <= set(schema["items"]["required"]), path


@each_resource
def test_rules_have_a_message(resource: type[CustomResource]) -> None:
    """Every CEL rule has a message."""
    rules = [rule for _, schema in walk(root_of(resource)) for rule in schema.get("x-kubernetes-validations", ())]
    assert all(rule["message"] for rule in rules)


@each_resource
def test_names_and_printer_columns(resource: type[CustomResource]) -> None:
    """Each kind has a short name, a status subresource and described printer columns, with the age last."""
    definition = definition_of(resource)
    (version,) = definition["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    assert definition["metadata"]["name"] == f"{resource.definition.plural}.bayplan.dev"
    assert definition["spec"]["names"]["shortNames"] == [resource.definition.short_name]
    assert version["subresources"] == {"status": {}}
    assert all(column["description"].endswith(".") for column in columns)
    assert [column["name"] for column in columns if "priority" not in column][-1] == "Age"


@each_resource
def test_columns_show_fields_that_exist(resource: type[CustomResource]) -> None:
    """The path of each printer column is a field of the schema."""
    metadata = {".metadata.creationTimestamp", ".metadata.ownerReferences[0].name"}
    known = {path for path, _ in walk(root_of(resource))} | metadata
    paths = [column.json_path for column in resource.definition.columns]
    fields = [path if "[?" not in path else ".status.conditions[]." + path.rpartition(".")[2] for path in paths]
    assert [field for field in fields if field not in known] == []


@each_resource
def test_a_file_has_the_definition(resource: type[CustomResource]) -> None:
    """A generated file contains the definition without YAML aliases; `make check` compares it with crds/."""
    text = rendered(resource)
    assert not any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text))
    assert yaml.safe_load(text) == definition_of(resource)


@pytest.mark.parametrize("absent", [False, True], ids=["edited", "absent"])
def test_check_shows_a_difference(absent: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--check finds nothing in new files; it shows the difference of an edited file, with the remedy, and keeps it."""
    output = ["--output", str(tmp_path / "new")]
    assert main(output) == 0
    assert main([*output, "--check"]) == 0
    assert capsys.readouterr() == ("", "")
    file = tmp_path / "new" / "podgroups.yaml"
    edited = file.read_text(encoding="utf-8").replace("- bpg", "- pgr")
    if absent:
        file.unlink()
    else:
        file.write_text(edited, encoding="utf-8")
    assert main([*output, "--check"]) == 1
    shown = capsys.readouterr()
    assert "\n+    - bpg\n" in shown.out
    assert ("\n-    - pgr\n" in shown.out) is not absent
    assert "make crds" in shown.err
    assert file.exists() is not absent
    assert absent or file.read_text(encoding="utf-8") == edited


class Part(BaseModel):
    """A part."""

    size: int = Field(default=3, ge=0, le=2**31 - 1, description="Its  size,\n in metres.")


class Whole(BaseModel):
    """The whole."""

    part: Part = Field(default=Part(), description="The part that counts.")
    other: Part | None = None
    kind: Literal["a", "b"] = Field(default="a", json_schema_extra={"x-keep-default": True})
    count: int = Field(default=0, ge=-(2**63), le=2**63 - 1)
    few: int = Field(default=0, ge=0, le=9)
    amounts: dict[str, Part] = Field(default_factory=dict)


def test_structural_schema() -> None:
    """References, titles, nulls and defaults are removed, and integers get a format."""
    size = {
        "type": "integer",
        "format": "int32",
        "minimum": 0,
        "maximum": 2**31 - 1,
        "description": "Its size, in metres.",
    }
    part = {"type": "object", "description": "A part.", "properties": {"size": size}}
    assert structural_schema(Whole) == {
        "type": "object",
        "description": "The whole.",
        "properties": {
            "part": {**part, "description": "The part that counts."},
            "other": part,
            "kind": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "count": {"type": "integer", "format": "int64"},
            "few": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9},
            "amounts": {"type": "object", "additionalProperties": part},
        },
    }


class Union(BaseModel):
    value: int | str


def test_a_union_without_an_explicit_schema_is_rejected() -> None:
    """A type that structural schemas cannot express is rejected."""
    with pytest.raises(TypeError, match="explicit schema"):
        structural_schema(Union)


KINDS = {resource.definition.kind: resource for resource in RESOURCES}

MODELS: dict[str, type[BaseModel]] = {
    name: model
    for module in (plugin_set_types, profile_config, gang_owners, plugin_args, scheduler_profile)
    for name, model in vars(module).items()
    if isinstance(model, type) and issubclass(model, BaseModel)
}


@pytest.mark.parametrize("refused", INVALID_MANIFESTS)
def test_models_reject_invalid_manifests(refused: InvalidManifest) -> None:
    """A model reports the problem of an invalid manifest with the path of the entry."""
    found = paths_in(lambda: KINDS[refused.kind].from_object(refused.manifest()))
    assert found == list(refused.model or ())


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlays_name_existing_fields(name: str) -> None:
    """An overlay names only existing fields, so no bound is lost when a field is renamed."""
    fields = {info.alias for info in MODELS[name].model_fields.values()}
    assert set(OVERLAYS[name].get("properties", {})) <= fields


def test_matches_uses_a_raw_string() -> None:
    """A pattern becomes a CEL rule with a raw string, so its backslashes are unchanged."""
    assert matches(r"^\d$", "must be a digit") == {"rule": r"self.matches(r'^\d$')", "message": "must be a digit"}
