"""The sources of the previous version, for tests of upgrades."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.release import previous_version as releases


def previous_version(directory: Path) -> Path:
    """Write the sources to a directory, and return it; skip the test in a checkout without history."""
    try:
        return releases.previous_version(directory)
    except releases.NoPreviousVersionError as error:
        pytest.skip(str(error))
