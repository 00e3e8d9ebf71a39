"""Simulated hours of campaigns, added up over nights in a file with one JSON object per campaign."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tests.simulation.campaign import Campaign

_HOUR = 3600.0


class NightHours(msgspec.Struct, frozen=True, rename="camel"):
    """One campaign.

    Attributes:
        first: First seed; a campaign with the same first seed replaces the earlier one, as it simulates the same hours.
        seeds: Number of lifetimes.
        failed: Number of lifetimes with a violation.
    """

    first: int
    seeds: int
    failed: int
    hours: float

    @classmethod
    def of(cls, campaign: Campaign, first: int) -> NightHours:
        return cls(first, campaign.seeds, len(campaign.failed), round(campaign.virtual_seconds / _HOUR, 2))


def add_hours(path: Path, night: NightHours) -> str:
    """Add a campaign to a file, and return a line with its hours and the hours of all campaigns in the file."""
    nights = read_hours(path)
    nights[night.first] = night
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in nights.values()))
    own = f"{night.hours:.1f} simulated hours, {night.failed} of {night.seeds} lifetimes with a violation"
    return f"{own}; {summed(path)}"


def summed(path: Path) -> str:
    """Return a line with the hours of all campaigns in a file."""
    nights = read_hours(path).values()
    if not nights:
        return f"{path} has no campaigns"
    hours, seeds, failed = (
        sum(each) for each in zip(*((one.hours, one.seeds, one.failed) for one in nights), strict=True)
    )
    return (
        f"all {len(nights)} campaigns of {path}: {hours:.1f} simulated hours, {failed} of {seeds} lifetimes with a "
        "violation"
    )


def read_hours(path: Path) -> dict[int, NightHours]:
    """Return the campaigns of a file by their first seed; none if it does not exist."""
    if not path.is_file():
        return {}
    nights = (msgspec.json.decode(line, type=NightHours) for line in path.read_bytes().splitlines())
    return {each.first: each for each in nights}


if __name__ == "__main__":
    print(summed(Path(sys.argv[1])))
