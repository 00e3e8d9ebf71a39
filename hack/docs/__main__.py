"""`python -m hack.docs`: generates docs/reference, the table of the chart's values, and llms.txt.

The pages are committed because they are read on the repository's site, which generates nothing.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bayplan.resources.crd_generation import RESOURCES, have_drifted, write_files

from hack.docs.reference_pages import (
    alert_page,
    chart_readme,
    command_page,
    llms_index,
    plugin_page,
    resource_page,
    settings_page,
)

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
CHART = "../../charts/bayplan/README.md"
LLMS = "../../llms.txt"


def pages() -> Mapping[str, str]:
    """Generate every page.

    Returns:
        The text of each, by its path from docs/reference.
    """
    resources = {f"{resource.definition.kind.lower()}.md": resource_page(resource) for resource in RESOURCES}
    return {
        **resources,
        "plugins.md": plugin_page(),
        "cli.md": command_page(),
        "settings.md": settings_page(),
        "alerts.md": alert_page(),
        CHART: chart_readme(),
        LLMS: llms_index(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.docs", description="Generate the reference pages.")
    parser.add_argument("--check", action="store_true", help="Write nothing; fail when a page is not up to date")
    check = parser.parse_args(arguments).check
    files = {REFERENCE / name: text for name, text in pages().items()}
    if not check:
        write_files(files)
        return 0
    drifted = have_drifted(files, "as generated from the code")
    if drifted:
        sys.stderr.write("Pages of docs/reference are not up to date: run `make docs` and commit the result.\n")
    return int(drifted)


if __name__ == "__main__":
    sys.exit(main())
