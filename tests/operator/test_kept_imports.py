"""Modules that are imported without the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bayplan.kept_imports import import_kept

NAME = "a_module_of_this_test"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)
    gc.enable()
    gc.unfreeze()


def test_the_collector_is_off_while_a_module_is_imported(module: Path) -> None:
    """It would walk ever more objects that all stay."""
    module.write_text("import gc\nwas_on = gc.isenabled()\n")
    assert (import_kept(NAME).was_on, gc.isenabled()) == (False, True)


def test_what_a_module_brings_along_is_out_of_the_collectors_sight(module: Path) -> None:
    """Modules are never garbage."""
    module.write_text("kept = [[]]\n")
    kept = import_kept(NAME).kept
    assert not [each for each in gc.get_objects() if each is kept]


@pytest.mark.parametrize("was_on", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_a_module_that_cannot_be_imported_leaves_the_collector_as_it_was(module: Path, was_on: bool) -> None:
    """A plugin that fails must not leave a process without a collector, nor one that had it off with one."""
    module.write_text("raise RuntimeError\n")
    (gc.enable if was_on else gc.disable)()
    with pytest.raises(RuntimeError):
        import_kept(NAME)
    assert gc.isenabled() is was_on


def test_a_module_that_is_there_is_given_as_it_is() -> None:
    """Asked again, nothing is imported and nothing frozen."""
    before = gc.get_freeze_count()
    assert (import_kept("sys"), gc.get_freeze_count()) == (sys, before)
