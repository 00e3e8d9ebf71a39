"""GpuShares: whole GPUs and shares of one GPU, with scores that pack them."""

from bayplan_example_plugins.gpu_shares.plugin import GpuShares

__all__ = ["GpuShares"]
