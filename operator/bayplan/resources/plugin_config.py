"""PluginConfig: the args of one plugin, shared by any number of profiles.

Owns the grammar of its spec, its status and its columns. It must not know the plugins: whether the args are valid
is judged with the plugin's own model when the object is reconciled. Why an object of its own: one edit reaches every
profile that refers to it.
"""

from typing import Any, ClassVar

from pydantic import Field

from bayplan.resources.admission import ARGS_SCHEMA
from bayplan.resources.conditions import CONDITIONS_SCHEMA, Condition
from bayplan.resources.resource_model import (
    MAX_NAME_LENGTH,
    CustomResource,
    PrinterColumn,
    ResourceDefinition,
    StatusModel,
)
from scheduler_core.config import plugins_config
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel


class PluginConfigSpec(ConfigModel):
    """Which plugin, and its args."""

    plugin: str = Field(
        min_length=1,
        description="Name of the plugin that takes the args, such as NodeResourcesFit.",
        json_schema_extra={"maxLength": MAX_NAME_LENGTH},
    )
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="The plugin's args in its own grammar, such as `scoringStrategy: {type: MostAllocated}` for "
        "NodeResourcesFit: for the plugins of kube-scheduler, the fields of its args kinds. What is left out takes the "
        "plugin's default. The condition Valid tells what is wrong with them.",
        json_schema_extra=dict(ARGS_SCHEMA),
    )


class PluginConfigStatus(StatusModel):
    """Whether the args are valid and who uses them; written by the operator."""

    observed_generation: int = Field(
        default=0, ge=0, le=INT64_MAX, description="The metadata.generation that this status was found for."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description="Valid: whether the plugin exists and takes these args, with every problem and its field path.",
        json_schema_extra=dict(CONDITIONS_SCHEMA),
    )
    reference_count: int = Field(default=0, ge=0, le=INT32_MAX, description="How many SchedulerProfiles refer to it.")
    referenced_by: tuple[str, ...] = Field(
        default=(),
        description="Names of the SchedulerProfiles that refer to this object, the first 256 in order.",
        json_schema_extra={
            "maxItems": 256,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": MAX_NAME_LENGTH},
        },
    )


class PluginConfig(CustomResource):
    """The args of one plugin, for every profile that refers to it."""

    definition: ClassVar[ResourceDefinition] = ResourceDefinition(
        kind="PluginConfig",
        plural="pluginconfigs",
        short_name="plc",
        namespaced=False,
        description="PluginConfig holds the args of one plugin, for every SchedulerProfile that names it in "
        "pluginConfigRefs. An edit reaches all of them at once; one that is not valid reaches none and is told in the "
        "condition Valid.",
        columns=(
            PrinterColumn("Plugin", "string", ".spec.plugin", "The plugin that takes the args."),
            PrinterColumn(
                "Valid", "string", '.status.conditions[?(@.type=="Valid")].status', "Whether the args are valid."
            ),
            PrinterColumn("Used", "integer", ".status.referenceCount", "How many profiles use it."),
            PrinterColumn("Used By", "string", ".status.referencedBy", "Profiles that use it.", wide=True),
            PrinterColumn(
                "Message",
                "string",
                '.status.conditions[?(@.type=="Valid")].message',
                "What is wrong with the args.",
                wide=True,
            ),
        ),
    )

    spec: PluginConfigSpec
    status: PluginConfigStatus = PluginConfigStatus()

    def entry(self) -> plugins_config.PluginConfig:
        """Give the object as an entry of a profile's ``pluginConfig``.

        Returns:
            The plugin and its args.
        """
        return plugins_config.PluginConfig(name=self.spec.plugin, args=self.spec.args)
