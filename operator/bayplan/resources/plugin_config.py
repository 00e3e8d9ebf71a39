"""PluginConfig: the args of one plugin, shared by any number of profiles.

The args are validated with the plugin's own model when the object is reconciled. It is an object of its own so that one
edit reaches every profile that refers to it.
"""

from typing import Any, ClassVar

from pydantic import Field

from bayplan.resources.conditions import Condition, conditions_field, generation_field
from bayplan.resources.crd_rules import ARGS_SCHEMA
from bayplan.resources.resource_model import (
    MAX_NAME_LENGTH,
    CustomResource,
    PrinterColumn,
    ResourceDefinition,
    StatusModel,
    condition_column,
    count,
    text,
)
from scheduler_core.config import plugin_set_types as plugins_config
from scheduler_core.config.config_model import ConfigModel


class PluginConfigSpec(ConfigModel):
    """The plugin and its args."""

    plugin: str = text("Name of the plugin that these args configure, such as NodeResourcesFit.", min_length=1)
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="Args of the plugin, such as `scoringStrategy: {type: MostAllocated}` for NodeResourcesFit. For "
        "kube-scheduler's plugins, the fields of its args kinds. A field left out has the plugin's default. Problems "
        "are reported in the condition Valid.",
        json_schema_extra=dict(ARGS_SCHEMA),
    )


class PluginConfigStatus(StatusModel):
    """Validity and references; written by the operator."""

    observed_generation: int = generation_field("this status")
    conditions: tuple[Condition, ...] = conditions_field(
        "Valid: whether the plugin exists and accepts these args, with every problem and its field path."
    )
    reference_count: int = count("Number of SchedulerProfiles that refer to it.", default=0)
    referenced_by: tuple[str, ...] = Field(
        default=(),
        description="Names of the SchedulerProfiles that refer to this object, the first 256 by name.",
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
        "pluginConfigRefs. An edit takes effect in all of them at once; an invalid edit takes effect in none and is "
        "reported in the condition Valid.",
        columns=(
            PrinterColumn("Plugin", "string", ".spec.plugin", "Plugin that the args configure."),
            condition_column("Valid", "Valid", "Whether the args are valid."),
            PrinterColumn("Used", "integer", ".status.referenceCount", "Number of profiles that use it."),
            PrinterColumn("Used By", "string", ".status.referencedBy", "Profiles that use it.", wide=True),
            condition_column("Message", "Valid", "Problems of the args.", "message", wide=True),
        ),
        selectable=(".spec.plugin",),
    )

    spec: PluginConfigSpec
    status: PluginConfigStatus = PluginConfigStatus()

    def entry(self) -> plugins_config.PluginConfig:
        """Return the object as an entry of a profile's ``pluginConfig``."""
        return plugins_config.PluginConfig(name=self.spec.plugin, args=self.spec.args)
