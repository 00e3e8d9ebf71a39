"""Arguments of GpuShares, and the names that follow from its domain."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from pydantic import Field

from scheduler_core.config.config_model import ConfigModel, RuleProblem

GPU_MILLI = 1000
"""Thousandths of one GPU."""


class Policy(Enum):
    """How nodes are scored, and which GPU of the node a share gets."""

    FRAGMENTATION = "Fragmentation"
    """The smallest increase of the expected fragmentation."""
    BEST_FIT = "BestFit"
    """The least CPU, memory and GPU left on the node."""
    DOT_PRODUCT = "DotProduct"
    """The smallest product of what is free on the node and what the pod requests."""
    PACKING = "Packing"
    """GPUs in use first, then idle GPUs of nodes in use, then idle nodes."""
    CLUSTERING = "Clustering"
    """Nodes whose pods request as many GPUs as the pod."""
    RANDOM = "Random"
    """Any node, any GPU."""
    UNSCORED = "Unscored"
    """Every node scores 0; a share gets the GPU with the least free that fits."""

    @property
    def scores_nodes(self) -> bool:
        """Whether nodes get different scores."""
        return self not in (Policy.RANDOM, Policy.UNSCORED)


class TypicalPod(ConfigModel):
    """One kind of pod of the target workload."""

    cpu_milli: int = Field(default=0, ge=0, le=10**9, description="CPU request, in thousandths of a CPU.")
    gpu_milli: int = Field(
        default=0, ge=0, le=10**6, description="GPU request: below 1000 a share, else a multiple of 1000."
    )
    models: tuple[str, ...] = Field(
        default=(), strict=False, description="Values of the model label, one of which the pod needs; [] for any."
    )
    weight: int = Field(default=1, ge=1, le=10**6, description="Frequency of the kind, relative to the others.")

    def rule_problems(self) -> Iterable[RuleProblem]:
        """Yield a GPU request that no GPU can serve."""
        if self.gpu_milli > GPU_MILLI and self.gpu_milli % GPU_MILLI:
            message = f"{self.gpu_milli} is neither a share of one GPU nor whole GPUs; use at most 1000, or a multiple"
            yield RuleProblem(("gpuMilli",), message)


class GpuSharesArgs(ConfigModel):
    """Arguments of the plugin."""

    domain: str = Field(
        default="gpu.example.com",
        min_length=1,
        max_length=200,
        description="Domain of the resource milli, the node label model and the pod annotation devices.",
    )
    policy: Policy = Field(default=Policy.BEST_FIT, strict=False, description="How nodes are scored.")
    workload: tuple[TypicalPod, ...] = Field(
        default=(), strict=False, max_length=1000, description="Target workload of the policy Fragmentation."
    )

    def rule_problems(self) -> Iterable[RuleProblem]:
        """Yield a missing workload."""
        if self.policy is Policy.FRAGMENTATION and not any(pod.gpu_milli for pod in self.workload):
            message = "the policy Fragmentation needs the pods to expect; list at least one with gpuMilli"
            yield RuleProblem(("workload",), message)

    @property
    def resource(self) -> str:
        """Extended resource: thousandths of a GPU."""
        return f"{self.domain}/milli"

    @property
    def model_label(self) -> str:
        """Label of nodes: model of their GPUs."""
        return f"{self.domain}/model"

    @property
    def devices_annotation(self) -> str:
        """Annotation of pods: the GPUs that they have, by index."""
        return f"{self.domain}/devices"
