"""The explanation of a pod without a live profile names the SchedulerProfile that would serve it."""

from __future__ import annotations

import pytest
from bayplan.profiles.profile_status import ProfileReading
from bayplan.serving.operator_server import profiles_not_live

INVALID = {"type": "Accepted", "status": "False", "message": 'there is no plugin "Foo"'}
READY = {"type": "Ready", "status": "True", "message": ""}


def reading(name: str, live: str = "", shadow_of: str = "", *conditions: dict[str, str]) -> ProfileReading:
    """Return what is known about a profile for scheduler name ``pack``."""
    return ProfileReading(name, "pack", live, shadow_of, conditions, ())


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param(
            [reading("pack", "", "", INVALID, READY)],
            ['SchedulerProfile pack would serve it and is not live (Accepted is False): there is no plugin "Foo"'],
            id="rejected",
        ),
        pytest.param([reading("new")], ["SchedulerProfile new would serve it and is not live"], id="no condition yet"),
        pytest.param([reading("pack", "abc")], [], id="live"),
        pytest.param([reading("shadow", "", "pack")], [], id="shadow"),
        pytest.param([], [], id="none"),
    ],
)
def test_profiles_that_are_not_live(readings: list[ProfileReading], expected: list[str]) -> None:
    """Only profiles that claim the scheduler name and are not live are named, with the failed condition."""
    assert list(profiles_not_live(readings, "pack")) == expected
    assert list(profiles_not_live(readings, "other")) == []
