"""What the three custom resources share: metadata, status, time and how each is presented to the API server.

Owns ``CustomResource`` and the description of a resource that its CustomResourceDefinition is made from. It must
not know any one resource. Why a spec is read strictly and a status leniently: the spec is what people write, while
a status may come from another version of the operator and must never stop a profile from being read.
"""

from collections.abc import Mapping
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


def format_time(moment: datetime) -> str:
    """Write a time as metav1.Time does.

    Args:
        moment: A time with its zone.

    Returns:
        UTC in whole seconds, such as ``2026-01-31T12:00:00Z``.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[
    datetime,
    PlainSerializer(format_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""The type of a status field that holds a time."""


class PrinterColumn(Struct, frozen=True):
    """A column of ``kubectl get``.

    Attributes:
        name: Its heading.
        type: OpenAPI type: string, integer or date.
        json_path: Where the value stands.
        description: What it tells.
        wide: Whether it is only shown with ``-o wide``.
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
        message: What is wrong and what to do.
        field_path: The field that it is about, such as ``.spec.schedulerName``.
    """

    rule: str
    message: str
    field_path: str


class ResourceDefinition(Struct, frozen=True):
    """What a CustomResourceDefinition says besides the schema.

    Attributes:
        kind: Such as ``SchedulerProfile``.
        plural: Such as ``schedulerprofiles``.
        short_name: Such as ``sp``.
        namespaced: Whether objects live in namespaces.
        description: What ``kubectl explain`` begins with.
        columns: The columns of ``kubectl get`` between NAME and AGE.
        rules: What must hold for the whole object.
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
    """A part of a status. Unknown fields are passed over and texts are read as times."""

    model_config = ConfigDict(extra="ignore", strict=False)


class CustomResource(ConfigModel):
    """An object of one of Bayplan's kinds."""

    definition: ClassVar[ResourceDefinition]

    api_version: str = API_VERSION
    kind: str = ""
    metadata: ObjectMeta

    @classmethod
    def from_object(cls, body: Mapping[str, Any]) -> Self:
        """Read an object from the API server or a file.

        Args:
            body: The object. A status that cannot be read counts as none.

        Returns:
            The object as a model.

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

    def status_document(self) -> dict[str, Any]:
        """Give the status as it is sent to the API server.

        Returns:
            Plain JSON types, camelCase; fields that hold None are left out, zero counts stay.
        """
        status: BaseModel = getattr(self, "status")  # noqa: B009 - each kind declares its own type of status
        return status.model_dump(mode="json", by_alias=True, exclude_none=True)
