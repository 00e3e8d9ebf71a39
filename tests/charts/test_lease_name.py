"""The Lease that the chart's Role names equals the Lease that the operator acquires."""

from __future__ import annotations

from typing import Any

from bayplan.settings.operator_settings import Settings

from tests.charts.conftest import Helm
from tests.support.tables import table


@table(
    "settings, name",
    ("all profiles", {}, "bayplan"),
    ("some profiles", {"profiles": "tier=a"}, "bayplan-cde32450"),
    ("selector with surrounding spaces", {"profiles": "\ttier=a \n"}, "bayplan-cde32450"),
    ("a longer selector", {"profiles": "tier in (a,b), !old"}, None),
    ("resourceName", {"resourceName": "mine"}, "mine"),
    ("resourceName, some profiles", {"profiles": "tier=a", "resourceName": "mine"}, "mine"),
)
def test_the_role_names_the_lease(helm: Helm, settings: dict[str, str], name: str | None) -> None:
    """The Role grants access to the Lease for every profile selector."""
    given: dict[str, Any] = {"leaderElection": {"leaderElect": True}}
    if "profiles" in settings:
        given["profiles"] = settings["profiles"]
    if "resourceName" in settings:
        given["leaderElection"]["resourceName"] = settings["resourceName"]
    rules = helm.documents({"settings": given})["Role"]["rules"]
    [named] = [rule["resourceNames"] for rule in rules if "resourceNames" in rule and rule["resources"] == ["leases"]]
    read = Settings.model_validate(given)
    lease = read.leader_election.options("default", read.selection).name
    assert named == [lease]
    assert name in (None, lease)
