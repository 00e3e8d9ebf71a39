"""Builders of Bayplan's custom resources as the API server returns them, with valid or invalid specs; a kubeconfig."""

from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]


def profile_manifest(name: str = "batch", spec: Manifest | None = None, **metadata: Any) -> Manifest:
    """Return a SchedulerProfile; ``age`` is its creation time in minutes, other keywords are metadata fields."""
    return _manifest("SchedulerProfile", name, spec or {}, metadata)


def plugin_config_manifest(
    name: str = "pack", plugin: str = "NodeResourcesFit", args: Manifest | None = None, **metadata: Any
) -> Manifest:
    """Return a PluginConfig; ``age`` is its creation time in minutes, other keywords are metadata fields."""
    return _manifest("PluginConfig", name, {"plugin": plugin, "args": args or {}}, metadata)


def write_kubeconfig(path: Path, server: str, user: Manifest | None = None, **cluster: Any) -> Path:
    """Write a kubeconfig with one cluster, user and context, and return its path."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def most_allocated() -> Manifest:
    """Return args of NodeResourcesFit with the strategy MostAllocated."""
    return {"scoringStrategy": {"type": "MostAllocated"}}


def _manifest(kind: str, name: str, spec: Manifest, metadata: Manifest) -> Manifest:
    age = metadata.pop("age", 0)
    return {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": kind,
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "generation": 1,
            "resourceVersion": "1",
            "creationTimestamp": f"2026-01-01T00:{age:02}:00Z",
            **metadata,
        },
        "spec": spec,
    }
