"""Finds profiles and policies of the descheduler that work against each other, in files that are validated together.

The descheduler's LowNodeUtilization evicts pods from full nodes so that they go to emptier ones, and its
HighNodeUtilization from empty nodes so that these can be removed. A profile that scores the opposite puts them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from bayplan.texts import yaml_documents

POLICY_GROUP, POLICY = "descheduler/", "DeschedulerPolicy"
_SCORED_BY = "NodeResourcesFit"
_SPREADS, _PACKS = "LowNodeUtilization", "HighNodeUtilization"


def is_policy(body: Mapping[str, Any]) -> bool:
    return body.get("kind") == POLICY and str(body.get("apiVersion") or "").startswith(POLICY_GROUP)


def policies_in(config_map: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the policies that a ConfigMap holds."""
    data = config_map.get("data")
    for text in data.values() if isinstance(data, Mapping) else ():
        if not isinstance(text, str) or POLICY not in text:
            continue
        try:
            documents = list(yaml_documents.load_all(text, yaml_documents.ManifestLoader))
        except yaml.YAMLError:
            # The descheduler rejects such a policy.
            continue
        yield from (each for each in documents if isinstance(each, Mapping) and is_policy(each))


def balance_plugins(policy: Mapping[str, Any]) -> frozenset[str]:
    """Return which of the plugins that balance by utilization a policy enables."""
    found: set[str] = set()
    for profile in _list(policy.get("profiles")):
        plugins = profile.get("plugins") if isinstance(profile, Mapping) else None
        balance = plugins.get("balance") if isinstance(plugins, Mapping) else None
        enabled = balance.get("enabled") if isinstance(balance, Mapping) else None
        found.update(each for each in _list(enabled) if isinstance(each, str))
    return frozenset(found & {_SPREADS, _PACKS})


def counteracting(args: Mapping[str, Any] | None, enabled: frozenset[str]) -> str:
    """Return why a profile works against the descheduler, with the remedy; "" if it does not.

    Args:
        args: Args of NodeResourcesFit; None for the defaults.
        enabled: The result of :func:`balance_plugins`.
    """
    strategy = _strategy(args)
    packs = _is_packing(strategy)
    kind = strategy.get("type", "LeastAllocated")
    if packs and _SPREADS in enabled:
        return (
            f"{kind} fills nodes, and the descheduler's {_SPREADS} evicts pods from full nodes: they return to them, "
            f"and are evicted again; use {_PACKS} instead, or exclude the pods of this profile by the labelSelector of "
            "DefaultEvictor"
        )
    if not packs and _PACKS in enabled:
        return (
            f"{kind} prefers empty nodes, and the descheduler's {_PACKS} evicts pods from them: they return, and are "
            f"evicted again; use MostAllocated, or disable {_PACKS}"
        )
    return ""


def scoring_args(plugin_config: Any) -> Mapping[str, Any] | None:
    """Return the args of NodeResourcesFit among those of a profile; None if it sets none."""
    for entry in plugin_config:
        if entry.name == _SCORED_BY and isinstance(entry.args, Mapping):
            return entry.args
    return None


def _strategy(args: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = (args or {}).get("scoringStrategy")
    return found if isinstance(found, Mapping) else {}


def _is_packing(strategy: Mapping[str, Any]) -> bool:
    if strategy.get("type") == "MostAllocated":
        return True
    if strategy.get("type") != "RequestedToCapacityRatio":
        return False
    ratio = strategy.get("requestedToCapacityRatio")
    points = [
        (each.get("utilization", 0), each.get("score", 0))
        for each in _list(ratio.get("shape") if isinstance(ratio, Mapping) else None)
        if isinstance(each, Mapping)
    ]
    return bool(points) and max(points)[1] > min(points)[1]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
