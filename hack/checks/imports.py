"""Import every module of both packages, with warnings as errors: what a dependency lacks shows at once."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Iterator

PACKAGES = ("scheduler_core", "bayplan")


def main() -> int:
    warnings.simplefilter("error")
    problems = {name: error for name in modules() if (error := _problem(name)) is not None}
    for name, error in problems.items():
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return 1 if problems else 0


def modules() -> Iterator[str]:
    """Names of all modules but those that run a program when they are imported."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield name
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith(".__main__"):
                yield module.name


def _problem(name: str) -> Exception | None:
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return error
    return None


if __name__ == "__main__":
    sys.exit(main())
