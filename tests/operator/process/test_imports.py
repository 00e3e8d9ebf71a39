"""Tests of imports without the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bayplan.process.imports import import_without_gc

NAME = "a_module_of_this_test"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / f"{NAME}.py"
    sys.modules.pop(NAME, None)
    gc.enable()
    gc.unfreeze()


def test_the_collector_is_off_while_a_module_is_imported(module: Path) -> None:
    """It would walk ever more objects that all stay."""
    module.write_text("import gc\nwas_on = gc.isenabled()\n")
    assert (import_without_gc(NAME).was_on, gc.isenabled()) == (False, True)


def test_the_collector_ignores_what_a_module_allocates(module: Path) -> None:
    """Modules are never garbage."""
    module.write_text("nested = [[]]\n")
    nested = import_without_gc(NAME).nested
    assert not [each for each in gc.get_objects() if each is nested]


@pytest.mark.parametrize("was_on", [pytest.param(True, id="on"), pytest.param(False, id="off")])
def test_a_module_that_cannot_be_imported_leaves_the_collector_as_it_was(module: Path, was_on: bool) -> None:
    """A plugin that fails must not leave the collector off, nor turn it on where it was off."""
    module.write_text("raise RuntimeError\n")
    (gc.enable if was_on else gc.disable)()
    with pytest.raises(RuntimeError):
        import_without_gc(NAME)
    assert gc.isenabled() is was_on


def test_an_imported_module_is_returned_as_it_is() -> None:
    """The second call imports nothing and freezes nothing."""
    before = gc.get_freeze_count()
    assert (import_without_gc("sys"), gc.get_freeze_count()) == (sys, before)
