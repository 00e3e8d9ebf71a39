"""Kubernetes' own schema of the objects that Bayplan reads, as a kube-apiserver v1.37.1 serves it.

``kubernetes-openapi.json.gz`` is written by ``python -m hack.kubernetes_schema`` and is loaded when a file is read,
never by the operator. Each type of the schema becomes a msgspec struct that forbids unknown fields, so that a valid
object is checked in microseconds; only for an invalid one the schema is walked, to find every problem.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

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
    """Schema of Kubernetes' objects.

    Attributes:
        served: All kinds that the API server serves, by apiVersion, for the versions of the objects that are read.
    """

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
    """Load the schema."""
    return OpenApiSchema(json.loads(gzip.decompress(SCHEMA_FILE.read_bytes())))
