"""The API server and the models reject the same manifests."""

from __future__ import annotations

import pytest
from bayplan.resources import scheduler_profile
from bayplan.resources.crd_generation import RESOURCES
from bayplan.resources.crd_rules import OVERLAYS, matches
from pydantic import BaseModel

from scheduler_core.config import affinity_and_selector_types as embedded
from scheduler_core.config import extender_config
from scheduler_core.config import plugin_set_types as plugins_config
from tests.support.problems import paths_in
from tests.support.refused_manifests import REFUSED, Refused

KINDS = {resource.definition.kind: resource for resource in RESOURCES}
MODELS: dict[str, type[BaseModel]] = {
    name: model
    for module in (plugins_config, extender_config, embedded, scheduler_profile)
    for name, model in vars(module).items()
    if isinstance(model, type) and issubclass(model, BaseModel)
}


@pytest.mark.parametrize("refused", REFUSED)
def test_models_reject_it_too(refused: Refused) -> None:
    """A file that never reaches the API server gets the same problem, with the path of the entry."""
    found = paths_in(lambda: KINDS[refused.kind].from_object(refused.manifest()))
    assert found == list(refused.model or ())


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlays_are_for_fields_that_exist(name: str) -> None:
    """A bound for a field that was renamed would be lost silently."""
    fields = {info.alias for info in MODELS[name].model_fields.values()}
    assert set(OVERLAYS[name].get("properties", {})) <= fields


def test_matches() -> None:
    """A pattern becomes a rule in CEL's raw string, so that its backslashes stay."""
    assert matches(r"^\d$", "must be a digit") == {"rule": r"self.matches(r'^\d$')", "message": "must be a digit"}
