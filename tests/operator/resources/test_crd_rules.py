"""Tests that the models reject the same manifests as the API server."""

from __future__ import annotations

import pytest
from bayplan.resources import scheduler_profile
from bayplan.resources.crd_generation import RESOURCES
from bayplan.resources.crd_rules import OVERLAYS, matches
from pydantic import BaseModel

from scheduler_core.config import plugin_args, plugin_set_types, profile_config
from tests.support.invalid_manifests import INVALID_MANIFESTS, InvalidManifest
from tests.support.problems import paths_in

KINDS = {resource.definition.kind: resource for resource in RESOURCES}
MODELS: dict[str, type[BaseModel]] = {
    name: model
    for module in (plugin_set_types, profile_config, plugin_args, scheduler_profile)
    for name, model in vars(module).items()
    if isinstance(model, type) and issubclass(model, BaseModel)
}


@pytest.mark.parametrize("refused", INVALID_MANIFESTS)
def test_models_reject_invalid_manifests(refused: InvalidManifest) -> None:
    """A model reports the problem of an invalid manifest with the path of the entry."""
    found = paths_in(lambda: KINDS[refused.kind].from_object(refused.manifest()))
    assert found == list(refused.model or ())


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlays_name_existing_fields(name: str) -> None:
    """An overlay names only existing fields, so no bound is lost when a field is renamed."""
    fields = {info.alias for info in MODELS[name].model_fields.values()}
    assert set(OVERLAYS[name].get("properties", {})) <= fields


def test_matches_uses_a_raw_string() -> None:
    """A pattern becomes a CEL rule with a raw string, so its backslashes are unchanged."""
    assert matches(r"^\d$", "must be a digit") == {"rule": r"self.matches(r'^\d$')", "message": "must be a digit"}
