"""Hours of campaigns are added up, and a repeated campaign counts once."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.campaign import run_campaign
from tests.simulation.simulated_hours import NightHours, add_hours, read_hours


def test_nights_are_added_up(tmp_path: Path) -> None:
    """The line has the hours of the campaign and of all campaigns; the same first seed replaces its campaign."""
    file = tmp_path / "nightly" / "hours.jsonl"
    add_hours(file, NightHours(1, 3000, 0, 100.25))
    add_hours(file, NightHours(2, 3000, 1, 101.5))
    line = add_hours(file, NightHours(2, 3000, 0, 101.5))
    assert line.startswith("101.5 simulated hours, 0 of 3000 lifetimes with a violation; all 2 campaigns of ")
    assert line.endswith(": 201.8 simulated hours, 0 of 6000 lifetimes with a violation")
    assert list(read_hours(file)) == [1, 2]


def test_hours_are_virtual_time() -> None:
    """The hours of a campaign are its virtual seconds."""
    campaign = run_campaign(range(2), 1)
    night = NightHours.of(campaign, 0)
    assert (night.first, night.seeds, night.failed) == (0, 2, 0)
    assert 0 < night.hours == round(campaign.virtual_seconds / 3600, 2)
