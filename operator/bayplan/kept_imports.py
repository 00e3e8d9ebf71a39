"""Modules that stay, imported without Python's garbage collector.

Owns how a command's own modules are imported. It must not know which. Why: nearly all that an import allocates stays,
so the collector would walk ever more objects and find next to nothing, for a tenth of the CPU of the whole, and later
again with each full collection.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType


def import_kept(name: str) -> ModuleType:
    """Import a module; the collector looks neither meanwhile nor later at what came with it.

    Args:
        name: Of the module.
    """
    if name in sys.modules:
        return sys.modules[name]
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
