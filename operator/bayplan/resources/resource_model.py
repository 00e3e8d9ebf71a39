"""Base of the custom resources: metadata, status, times, and what their CustomResourceDefinitions are generated from.

A spec is validated strictly and a status leniently: users write the spec, while a status may come from another version
of the operator and must not prevent reading the profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

from msgspec import Struct
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict, JsonValue

from scheduler_core.config.config_model import INT32_MAX, ConfigModel
from scheduler_core.config.validation import field_path, validate
from scheduler_core.errors import ConfigError, Problem

MAX_DEPTH = 32
MAX_VALUES = 10_000
MAX_TEXT_LENGTH = 65_536
MAX_KEY_LENGTH = 317
"""Maximum length of a label key: a DNS name of 253 characters, a slash, 63 more."""

_INT64 = range(-(2**63), 2**64)
_MAX_PROBLEMS = 8
_SHOWN = 64

_Location = tuple[str | int, ...]


def bound_problems(document: object, prefix: str) -> tuple[Problem, ...]:
    """Return the first few values that are out of bounds; none if it may be read."""
    problems: list[Problem] = []
    to_see: list[tuple[_Location, object]] = [((), document)]
    seen = 0
    while to_see and len(problems) < _MAX_PROBLEMS:
        location, value = to_see.pop()
        seen += 1
        message = _out_of_bounds(value)
        inner = () if message else tuple(_within(value))
        if inner and len(location) >= MAX_DEPTH:
            message = f"is nested deeper than {MAX_DEPTH} levels; make it flatter"
        elif seen + len(to_see) + len(inner) > MAX_VALUES:
            message = f"increases the total to more than {MAX_VALUES:,} values; remove some"
            to_see.clear()
        if message:
            problems.append(Problem(field_path(prefix, location), message))
        else:
            to_see += [((*location, key), one) for key, one in inner[::-1]]
    return tuple(problems)


def _within(value: object) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)


def _out_of_bounds(value: object) -> str:
    """Return what is wrong with a value itself, not with the values in it."""
    if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH:
        return f"must have at most {MAX_TEXT_LENGTH:,} characters, not {len(value):,}"
    if isinstance(value, int) and value not in _INT64:
        return "must be a number of at most 64 bits"
    if isinstance(value, Mapping | list | tuple) and len(value) > MAX_VALUES:
        return f"must have at most {MAX_VALUES:,} entries, not {len(value):,}"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                return "must have strings as field names; put them in quotes"
            if len(key) > MAX_KEY_LENGTH:
                return f'has a field with a name of over {MAX_KEY_LENGTH} characters, "{key[:_SHOWN]}..."; remove it'
    return ""


GROUP = "bayplan.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

MAX_NAME_LENGTH = 253

CHANGE_CAUSE = "kubernetes.io/change-cause"
"""The annotation for the reason of a change, as for Deployments."""


def change_cause(metadata: Mapping[str, Any]) -> str:
    """Return the change cause from an object's annotation."""
    return str((metadata.get("annotations") or {}).get(CHANGE_CAUSE) or "")


def format_time(moment: datetime) -> str:
    """Format a time in whole seconds UTC like metav1.Time, such as ``2026-01-31T12:00:00Z``."""
    # The API server accepts times that are in the year 0 or 10000 in UTC; nearly the same time can be written.
    with suppress(OverflowError):
        moment = moment.astimezone(UTC)
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


Timestamp = Annotated[
    AwareDatetime,
    PlainSerializer(format_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Type of a status field with a time, which has a time zone, as the API server requires."""


class PrinterColumn(Struct, frozen=True):
    """A column of ``kubectl get``.

    Attributes:
        type: OpenAPI type: string, integer or date.
        wide: Whether it is shown only with ``-o wide``.
    """

    name: str
    type: str
    json_path: str
    description: str
    wide: bool = False


def condition_column(
    name: str, kind: str, description: str, field: str = "status", *, wide: bool = False
) -> PrinterColumn:
    return PrinterColumn(name, "string", f'.status.conditions[?(@.type=="{kind}")].{field}', description, wide)


class ObjectRule(Struct, frozen=True):
    """A CEL rule on a whole object.

    Attributes:
        rule: The expression; it may read ``metadata.name``, ``spec`` and ``oldSelf``.
        field_path: The field that it is about, such as ``.spec.schedulerName``.
    """

    rule: str
    message: str
    field_path: str


class ResourceDefinition(Struct, frozen=True):
    """Content of a CustomResourceDefinition besides the schema.

    Attributes:
        description: First text of ``kubectl explain``.
        columns: The columns of ``kubectl get`` between NAME and AGE.
        selectable: Paths of the fields that ``--field-selector`` and watches select by; strings, integers or booleans.
    """

    kind: str
    plural: str
    short_name: str
    namespaced: bool
    description: str
    columns: tuple[PrinterColumn, ...]
    rules: tuple[ObjectRule, ...] = ()
    selectable: tuple[str, ...] = ()


class ObjectMeta(BaseModel):
    """The part of an object's metadata that the operator reads."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    name: str = Field(min_length=1)
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


def text(description: str, limit: int = MAX_NAME_LENGTH, *, default: Any = ..., min_length: int | None = None) -> Any:
    """Return a field for a text of at most ``limit`` characters, which only the API server enforces."""
    return Field(
        default=default, min_length=min_length, description=description, json_schema_extra={"maxLength": limit}
    )


def count(description: str, *, default: Any = ..., limit: int = INT32_MAX) -> Any:
    return Field(default=default, ge=0, le=limit, description=description)


def number(description: str, *, ge: int, le: int = INT32_MAX) -> Any:
    """Return an optional field for a number."""
    return Field(default=None, ge=ge, le=le, description=description)


def kept(default: Any, description: str, *, ge: int | None = None, le: int | None = None) -> Any:
    """Return a field whose default the API server writes into the object, so that a later version cannot change it."""
    return Field(default=default, ge=ge, le=le, description=description, json_schema_extra={"x-keep-default": True})


def cel_rules(*rules: tuple[str, str]) -> ConfigDict:
    """Return the configuration of a model whose objects the API server validates by CEL rules, with their messages."""
    found: list[JsonValue] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": found})


def entries(description: str, limit: int, *, key: str = "") -> Any:
    """Return a field for a list, which is empty by default and has at most one entry for each value of ``key``."""
    keys: JsonDict = {"x-kubernetes-list-map-keys": [key]} if key else {}
    schema: JsonDict = {"maxItems": limit, "x-kubernetes-list-type": "map" if key else "atomic", **keys}
    return Field(default=(), description=description, json_schema_extra=schema)


class StatusModel(ConfigModel):
    """A part of a status; unknown fields are ignored and strings are parsed as times."""

    model_config = ConfigDict(extra="ignore", strict=False)


class CustomResource(ConfigModel):
    """An object of one of Bayplan's kinds."""

    definition: ClassVar[ResourceDefinition]

    api_version: str = API_VERSION
    kind: str = ""
    metadata: ObjectMeta

    @classmethod
    def from_object(cls, body: Mapping[str, Any]) -> Self:
        """Parse an object from the API server or a file.

        Args:
            body: The object. A status that cannot be parsed is ignored.

        Raises:
            ConfigError: With every problem in its metadata and spec, paths beginning with ``metadata`` or ``spec``.
        """
        out_of_bounds = bound_problems(body.get("spec"), "spec")
        if out_of_bounds:
            raise ConfigError(out_of_bounds)
        without_status = {name: value for name, value in body.items() if name != "status"}
        if body.get("status"):
            try:
                return validate(cls, body)
            except ConfigError:
                return validate(cls, without_status)
        return validate(cls, without_status)
