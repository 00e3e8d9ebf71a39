"""Status of a shadow profile: what it decided differently from its live profile, and what its choices would cause."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bayplan.resources.resource_model import MAX_NAME_LENGTH, StatusModel, Timestamp
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX

MAX_DIFFERENCES = 100
MAX_REASON_LENGTH = 512
_MAX_POD_KEY_LENGTH = 2 * MAX_NAME_LENGTH + 1
_MAX_RESOURCES = 32
_MAX_REASONS = 16
_DECIMAL = {"maxLength": 32}


class NotCompared(StatusModel):
    """Decisions of the live profile that the shadow did not make, by reason."""

    reason: str = Field(
        description="Why. Sample: not in the sample. Budget: no time was left. StateChanged: the cluster or the "
        "nominations changed before the shadow could decide. Gang, Devices, Volumes, Preemption, Resize: the pod is a "
        "member of a gang, has resource claims or unbound volume claims, preempts others, or waits for a resize. "
        "Extenders: an extender of the shadow takes part, and shadowExtenders is not true. Error, ShadowError: the "
        "live profile or the shadow failed. Paused: the shadow failed repeatedly.",
        json_schema_extra={"maxLength": 63},
    )
    count: int = Field(ge=0, le=INT64_MAX, description="Number of decisions.")


class ScoreDifference(StatusModel):
    """Average difference of total scores where the profiles chose different nodes that both allow."""

    live: str | None = Field(
        default=None,
        description="Points by which the live profile prefers its own node to the shadow's, in its own scores.",
        json_schema_extra=dict(_DECIMAL),
    )
    shadow: str | None = Field(
        default=None,
        description="Points by which the shadow prefers its own node to the live one, in its own scores.",
        json_schema_extra=dict(_DECIMAL),
    )


class ResourceFigures(StatusModel):
    """Figures of one resource."""

    name: str = Field(description="The resource.", json_schema_extra={"maxLength": MAX_NAME_LENGTH})
    imbalance: str | None = Field(
        default=None,
        description="Standard deviation of the nodes' utilization, in percent.",
        json_schema_extra=dict(_DECIMAL),
    )
    unusable: str | None = Field(
        default=None,
        description="Share of the free amount on nodes where a carried pod would not fit, in percent, averaged over "
        "the carried pods.",
        json_schema_extra=dict(_DECIMAL),
    )


class PlacementFigures(StatusModel):
    """Packing and spread of one state of the cluster."""

    empty_nodes: int = Field(ge=0, le=INT32_MAX, description="Nodes without pods.")
    placed: int = Field(ge=0, le=INT32_MAX, description="Carried pods that have a node.")
    zone_skew: int | None = Field(
        default=None,
        ge=0,
        le=INT32_MAX,
        description="Difference between the zones with the most and the fewest carried pods; absent without two zones.",
    )
    resources: tuple[ResourceFigures, ...] = Field(
        default=(),
        description="Figures by resource.",
        json_schema_extra={"maxItems": _MAX_RESOURCES, "x-kubernetes-list-type": "atomic"},
    )


class CarriedForward(StatusModel):
    """Estimate of what the shadow's choices would cause: they are carried forward for up to 300 pods or 10 minutes."""

    since: Timestamp = Field(description="Start of the present period.")
    pods: int = Field(ge=0, le=INT32_MAX, description="Pods whose decisions are carried forward.")
    moved: int = Field(
        ge=0, le=INT32_MAX, description="Those that have another node than in the cluster, or none, by the shadow."
    )
    live: PlacementFigures = Field(description="The cluster as it is.")
    shadow: PlacementFigures = Field(description="The cluster with the shadow's choices for these pods.")


class Difference(StatusModel):
    """One decision that differed."""

    time: Timestamp = Field(description="Time of the decision.")
    pod: str = Field(description="namespace/name.", json_schema_extra={"maxLength": _MAX_POD_KEY_LENGTH})
    kind: Literal["OtherNode", "WouldReject", "WouldPlace"] = Field(
        description="OtherNode: the shadow chose another node. WouldReject: it rejects a pod that the live profile "
        "placed. WouldPlace: it places a pod that the live profile rejected."
    )
    live_node: str | None = Field(
        default=None,
        description="Node of the live profile; absent if it rejected the pod.",
        json_schema_extra={"maxLength": MAX_NAME_LENGTH},
    )
    shadow_node: str | None = Field(
        default=None,
        description="Node of the shadow; absent if it rejects the pod.",
        json_schema_extra={"maxLength": MAX_NAME_LENGTH},
    )
    reason: str = Field(
        description="Why they differ: which profile rejects which node, or the plugins whose scores decide.",
        json_schema_extra={"maxLength": MAX_REASON_LENGTH},
    )


class ShadowStatus(StatusModel):
    """Comparison of a shadow with its live profile, since one of the two changed last."""

    live_revision: str | None = Field(
        default=None,
        description="Revision of the live profile that it is compared with.",
        json_schema_extra={"maxLength": 63},
    )
    since: Timestamp = Field(description="Start of the comparison.")
    decided: int = Field(ge=0, le=INT64_MAX, description="Decisions of the live profile.")
    compared: int = Field(ge=0, le=INT64_MAX, description="Decisions that the shadow made, too, on the same state.")
    agreed: int = Field(ge=0, le=INT64_MAX, description="Compared decisions that were equal: the same node, or none.")
    differed: int = Field(ge=0, le=INT64_MAX, description="Compared decisions that differed.")
    other_node: int = Field(ge=0, le=INT64_MAX, description="Pods for which the shadow chose another node.")
    would_reject: int = Field(
        ge=0, le=INT64_MAX, description="Pods that the live profile placed and the shadow rejects."
    )
    would_place: int = Field(
        ge=0, le=INT64_MAX, description="Pods that the live profile rejected and the shadow places."
    )
    not_compared: tuple[NotCompared, ...] = Field(
        default=(),
        description="Decisions of the live profile that were not compared.",
        json_schema_extra={
            "maxItems": _MAX_REASONS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["reason"],
        },
    )
    errors: int = Field(default=0, ge=0, le=INT64_MAX, description="Decisions of the shadow that failed.")
    last_error: str | None = Field(
        default=None, description="Message of the last of these.", json_schema_extra={"maxLength": 4096}
    )
    seconds: str = Field(
        description="Time that the shadow used, in seconds of the scheduler.", json_schema_extra=dict(_DECIMAL)
    )
    score_difference: ScoreDifference = Field(
        default=ScoreDifference(), description="Average score differences, per decision."
    )
    carried_forward: CarriedForward | None = Field(
        default=None,
        description="Effect of the shadow's choices on packing and spread, if they had been taken. All other figures "
        "are of single decisions on the live state.",
    )
    differences: tuple[Difference, ...] = Field(
        default=(),
        description="The last differences, the newest first.",
        json_schema_extra={"maxItems": MAX_DIFFERENCES, "x-kubernetes-list-type": "atomic"},
    )
