"""Base of the custom resources: metadata, status, times, and what their CustomResourceDefinitions are generated from.

A spec is validated strictly and a status leniently: users write the spec, while a status may come from another version
of the operator and must not prevent reading the profile.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from bayplan.resources.document_bounds import bound_problems
from scheduler_core.config.config_model import ConfigModel
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError

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
    """Format a time like metav1.Time.

    Returns:
        UTC in whole seconds, such as ``2026-01-31T12:00:00Z``.
    """
    # The API server accepts times that are in the year 0 or 10000 in UTC; nearly the same time can be written.
    with suppress(OverflowError):
        moment = moment.astimezone(UTC)
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


Timestamp = Annotated[
    datetime,
    PlainSerializer(format_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Type of a status field with a time."""


class PrinterColumn(Struct, frozen=True):
    """A column of ``kubectl get``.

    Attributes:
        type: OpenAPI type: string, integer or date.
        description: Description for the CustomResourceDefinition.
        wide: Whether it is shown only with ``-o wide``.
    """

    name: str
    type: str
    json_path: str
    description: str
    wide: bool = False


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
        kind: Such as ``SchedulerProfile``.
        plural: Such as ``schedulerprofiles``.
        short_name: Such as ``sp``.
        description: First text of ``kubectl explain``.
        columns: The columns of ``kubectl get`` between NAME and AGE.
    """

    kind: str
    plural: str
    short_name: str
    namespaced: bool
    description: str
    columns: tuple[PrinterColumn, ...]
    rules: tuple[ObjectRule, ...] = ()


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
