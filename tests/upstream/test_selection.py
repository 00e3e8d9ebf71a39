"""The tests of kube-scheduler that CI runs have the pinned verdicts; they run with ``--upstream`` only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.upstream.__main__ import main, read_selection


@pytest.mark.upstream
@pytest.mark.reference
@pytest.mark.timeout(900)
@pytest.mark.parametrize("package", read_selection(Path(__file__).with_name("selection.toml")))
def test_selected_tests_have_the_pinned_verdicts(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every difference is an error, a better verdict included."""
    monkeypatch.setenv("PATH", os.environ["PATH"])
    assert main(["--selection", package]) == 0, capsys.readouterr().out
