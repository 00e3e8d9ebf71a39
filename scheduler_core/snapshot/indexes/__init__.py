"""Indexes beside the columns: what plugins look up about pods, volumes, workloads and images."""
