"""Finds kube-scheduler configurations in ConfigMaps, which is how clusters store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from bayplan.texts import yaml_documents

CONFIG_MAP = ("v1", "ConfigMap")
CONFIGURATION = "KubeSchedulerConfiguration"


def configurations_in(config_map: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the configurations in a ConfigMap, with their keys; none for one that holds something else.

    A text that mentions a configuration but is not YAML is returned as it is, so that it is reported.
    """
    data = config_map.get("data")
    found: list[tuple[str, Any]] = []
    for name, text in data.items() if isinstance(data, Mapping) else ():
        if not isinstance(text, str) or CONFIGURATION not in text:
            continue
        try:
            documents = list(yaml_documents.load_all(text, yaml_documents.ManifestLoader))
        except yaml.YAMLError:
            documents = [text]
        found += [
            (str(name), each)
            for each in documents
            if isinstance(each, str) or (isinstance(each, Mapping) and each.get("kind") == CONFIGURATION)
        ]
    return found
