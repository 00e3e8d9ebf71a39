"""Strict decoding as by the API server with ``fieldValidation=Strict``: unknown fields, types, ranges, formats.

A valid object is only converted to a msgspec struct. Otherwise the schema is walked: every problem is found, and the
rest of the object is kept without the invalid parts, so that the rules can be applied to it too.

Follows sigs.k8s.io/json and apimachinery v0.37.1: names are case-sensitive, null means "not set", required fields are
not required by decoding, an integer may be written as 1.0 (kubectl writes it as 1).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import Problem

SCHEMA_FILE = Path(__file__).with_name("kubernetes-openapi.json.gz")

Schema = Mapping[str, Any]

_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)
TIME_PATTERN = rf"^{_DATE}T(?:[01]?\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d+)?(?:Z|[+-](?:[01]\d|2[0-4]):(?:[0-5]\d|60))$"
"""What Go's ``time.Parse`` accepts with RFC 3339."""
BASE64_PATTERN = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
QUANTITY_PATTERN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?$"


FREE_TYPES = frozenset(
    {"io.k8s.apimachinery.pkg.runtime.RawExtension", "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"}
)
"""Types without fixed fields; any other object without fields in the schema must be empty."""


class OpenApiSchema:
    """Schema of Kubernetes' objects; ``served`` has all kinds of the versions that are read, by apiVersion."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.kubernetes: str = document["kubernetes"]
        self.types: Mapping[str, Schema] = document["types"]
        self.served: Mapping[str, list[str]] = document["served"]
        self._kinds: Mapping[str, str] = document["kinds"]
        self._structs: dict[str, Any] = {}

    def type_of(self, api_version: str, kind: str) -> str:
        """Return the name of an object's type; "" if the schema does not have it."""
        return self._kinds.get(f"{api_version}/{kind}", "")

    def kinds(self) -> list[tuple[str, str]]:
        """Return apiVersion and kind of all objects."""
        return [(version, kind) for version, _, kind in (each.rpartition("/") for each in self._kinds)]

    def struct_of(self, name: str) -> Any:
        """Return the msgspec type to which an object of a type can be converted if its structure is valid."""
        if name not in self._structs:
            self._structs[name] = self._struct(name)
        return self._structs[name]

    def _struct(self, name: str) -> Any:
        schema = self.types[name]
        if name in FREE_TYPES:
            return Any
        if "properties" not in schema and schema.get("type") != "object":
            return self._annotation(schema, required=True)
        fields = [
            (f"f{index}", self._annotation(each), None)
            for index, each in enumerate(schema.get("properties", {}).values())
        ]
        names = {f"f{index}": field for index, field in enumerate(schema.get("properties", {}))}
        return msgspec.defstruct(
            f"Type{len(self._structs)}", fields, forbid_unknown_fields=True, rename=names.get, gc=False
        )

    def _annotation(self, schema: Schema, *, required: bool = False) -> Any:
        found: Any
        if "ref" in schema:
            found = self.struct_of(schema["ref"])
        elif "items" in schema:
            found = list[self._annotation(schema["items"])]  # type: ignore[misc]  # built from a schema
        elif "values" in schema:
            found = dict[str, self._annotation(schema["values"])]  # type: ignore[misc]  # built from a schema
        else:
            found = _scalar(schema)
        return found if required else found | None


def _scalar(schema: Schema) -> Any:
    kind, form = schema.get("type"), schema.get("format")
    if schema.get("oneOf") == ["number", "string"]:
        return Annotated[str, msgspec.Meta(pattern=QUANTITY_PATTERN)] | int | float
    if form == "int-or-string":
        return str | Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
    if kind == "string" and form == "date-time":
        return Annotated[str, msgspec.Meta(pattern=TIME_PATTERN)]
    if kind == "string" and form == "byte":
        return Annotated[str, msgspec.Meta(pattern=BASE64_PATTERN)]
    if kind == "integer":
        bits = 31 if form == "int32" else 63
        return Annotated[int, msgspec.Meta(ge=-(2**bits), le=2**bits - 1)]
    return {"string": str, "boolean": bool, "number": float, "object": dict[str, Any]}.get(str(kind), Any)


@cache
def kubernetes_schema() -> OpenApiSchema:
    return OpenApiSchema(json.loads(gzip.decompress(SCHEMA_FILE.read_bytes())))


_WORDS = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
_MAX_PROBLEMS = 100


def strictly_decoded(body: Mapping[str, Any], type_name: str) -> tuple[Mapping[str, Any], tuple[Problem, ...]]:
    """Return an object without its invalid parts, the same one if there are none, and all problems."""
    schema = kubernetes_schema()
    try:
        msgspec.convert(body, schema.struct_of(type_name))
    except msgspec.ValidationError:
        walk = _Walk(schema)
        valid = walk.value(body, {"ref": type_name}, "")
        return valid, tuple(walk.problems)
    return body, ()


class _InvalidValueError(Exception):
    """Raised for a value that cannot be decoded."""


class _Walk:
    """Walk through an object along its schema, which notes at most 100 problems."""

    def __init__(self, schema: OpenApiSchema) -> None:
        self._schema = schema
        self.problems: list[Problem] = []

    def value(self, value: Any, schema: Schema, path: str) -> Any:
        """Return a value without its invalid parts, or note a problem and raise _InvalidValueError."""
        while "ref" in schema:
            if schema["ref"] in FREE_TYPES:
                return value
            schema = self._schema.types[schema["ref"]]
        if value is None:
            return None
        if "properties" in schema or "values" in schema or schema.get("type") == "object":
            return self._mapping(value, schema, path)
        if "items" in schema:
            return self._list(value, schema, path)
        message = _scalar_problem(value, schema)
        if message:
            self._note(path, message)
            raise _InvalidValueError
        return int(value) if schema.get("type") == "integer" else value

    def _mapping(self, value: Any, schema: Schema, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._note(path, f"must be a mapping of fields, not {_shown(value)}; correct it")
            raise _InvalidValueError
        properties = None if "values" in schema else schema.get("properties", {})
        found: dict[str, Any] = {}
        for key, each in value.items():
            name = _key(key)
            place = f"{path}[{name}]" if properties is None else f"{path}.{name}" if path else name
            inner = schema.get("values") if properties is None else properties.get(name)
            if properties is not None and inner is None:
                hint = did_you_mean(name, properties)
                self._note(place, f"unknown field; remove it or correct its name{hint}")
                continue
            try:
                found[name] = each if inner is None else self.value(each, inner, place)
            except _InvalidValueError:
                continue
        return found

    def _list(self, value: Any, schema: Schema, path: str) -> list[Any]:
        if not isinstance(value, list):
            self._note(path, f"must be a list, not {_shown(value)}; begin each entry with -")
            raise _InvalidValueError
        found = []
        for index, each in enumerate(value):
            try:
                found.append(self.value(each, schema["items"], f"{path}[{index}]"))
            except _InvalidValueError:
                found.append(None)
        return found

    def _note(self, path: str, message: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Problem(path, message))


def _key(key: Any) -> str:
    """Return the name of a field as kubectl writes it, which converts keys of YAML to text."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _scalar_problem(value: Any, schema: Schema) -> str:
    kind, form = schema.get("type"), schema.get("format")
    if schema.get("oneOf") == ["number", "string"]:
        return _quantity_problem(value)
    if form == "int-or-string":
        if isinstance(value, str) or (_is_whole(value) and -(2**31) <= value < 2**31):
            return ""
        return f"must be a whole number of 32 bits or text, not {_shown(value)}; correct it"
    if kind == "integer":
        return _integer_problem(value, 31 if form == "int32" else 63)
    if kind == "boolean":
        fits = isinstance(value, bool)
    elif kind == "number":
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif kind == "string":
        fits = isinstance(value, str)
    else:
        return ""
    if not fits:
        return f"must be {_WORDS[kind]}, not {_shown(value)}; {_remedy(kind, value)}"
    if kind == "string" and form == "date-time" and not re.fullmatch(TIME_PATTERN, value):
        return f"must be a time such as 2026-11-26T08:00:00Z, not {_shown(value)}; correct it"
    if kind == "string" and form == "byte" and not re.fullmatch(BASE64_PATTERN, value):
        return "must be base64; encode the value"
    return ""


def _integer_problem(value: Any, bits: int) -> str:
    if not _is_whole(value):
        return f"must be a whole number, not {_shown(value)}; {_remedy('integer', value)}"
    if not -(2**bits) <= value < 2**bits:
        return f"must be a whole number of {bits + 1} bits, not {_shown(value)}; correct it"
    return ""


def _quantity_problem(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number or (isinstance(value, str) and re.fullmatch(QUANTITY_PATTERN, value.strip())):
        return ""
    return f"must be an amount such as 2, 500m or 1.5Gi, not {_shown(value)}; correct it"


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _remedy(kind: str, value: Any) -> str:
    if kind == "string" and isinstance(value, bool | int | float):
        return "put it in quotes"
    if kind in ("integer", "number", "boolean") and isinstance(value, str):
        return "remove the quotes"
    return "correct it"


def _shown(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value[:64]}"'
        case int() | float():
            return str(value)[:64]
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return type(value).__name__
