"""Custom resources as the API server gives them, from the few words that matter to a test.

Owns the short forms. It must not judge them: tests write bad ones on purpose.
"""

from typing import Any

Manifest = dict[str, Any]


def profile_manifest(name: str = "batch", spec: Manifest | None = None, **metadata: Any) -> Manifest:
    """A SchedulerProfile; ``age`` is the minute of its creation, other words go into its metadata."""
    return _manifest("SchedulerProfile", name, spec or {}, metadata)


def plugin_config_manifest(
    name: str = "pack", plugin: str = "NodeResourcesFit", args: Manifest | None = None, **metadata: Any
) -> Manifest:
    """A PluginConfig; ``age`` is the minute of its creation, other words go into its metadata."""
    return _manifest("PluginConfig", name, {"plugin": plugin, "args": args or {}}, metadata)


def most_allocated() -> Manifest:
    """Args of NodeResourcesFit that pack."""
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
