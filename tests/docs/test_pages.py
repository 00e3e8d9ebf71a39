"""Links, manifests and runbooks are valid. `make check` compares the generated pages with the code."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.validation.manifest_files import read_manifests
from bayplan.validation.manifest_validation import ManifestValidation

from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.schedulers import install_crds
from tests.docs.markdown import ROOT, Page, pages

PAGES = pages()
KINDS = frozenset({"SchedulerProfile", "PluginConfig", "PodGroup", "Pod"})
_BY_PATH = {page.path: page for page in PAGES}


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if page.links])
def test_links_resolve(page: Page) -> None:
    """Each link within the repository names an existing file and an existing heading of it."""
    dead = [f"{link.place}: {link.target}" for link in page.links if not _resolves(page.path, link.target)]
    assert dead == []


def test_every_page_is_in_the_index() -> None:
    """The index in docs/README.md links every page."""
    index = ROOT / "docs" / "README.md"
    named = {(index.parent / link.target.partition("#")[0]).resolve() for link in _BY_PATH[index].links}
    assert {page.name for page in PAGES if "docs/" in page.name and page.path not in named | {index}} == set()


def test_the_api_server_accepts_the_manifests(control_plane: ControlPlane) -> None:
    """The API server accepts every complete manifest of a page."""
    install_crds(control_plane)
    found = [(place, manifest) for page in PAGES for place, manifest in _manifests(page)]
    assert found
    refused = []
    for place, manifest in found:
        if manifest["metadata"].pop("namespace", None):
            manifest["metadata"]["namespace"] = "default"
        try:
            control_plane.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(manifest))
        except ControlPlaneError as error:
            refused.append(f"{place}: {error}")
    assert refused == []


def test_manifests_are_valid(tmp_path: Path) -> None:
    """The operator accepts every complete manifest of a page."""
    for page in PAGES:
        for place, manifest in _manifests(page):
            (tmp_path / f"{place.replace('/', '_')}.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    found = [read_manifests([str(file)]).manifests for file in sorted(tmp_path.iterdir())]
    assert found
    assert [finding for manifests in found for finding in ManifestValidation(manifests).findings] == []


def _resolves(page: Path, target: str) -> bool:
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    if not path.exists():
        return False
    if not anchor:
        return True
    found = _BY_PATH.get(path) or (Page(path) if path.suffix == ".md" else None)
    return found is not None and anchor in found.anchors


def _manifests(page: Page) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the complete objects of KINDS in the YAML blocks of a page; documents without metadata are fragments."""
    for block in page.blocks:
        if block.language != "yaml":
            continue
        for document in yaml.safe_load_all(block.text):
            if isinstance(document, dict) and document.get("kind") in KINDS and document.get("metadata"):
                yield block.place, document


@pytest.mark.parametrize("page", ["README.md", "docs/internals/architecture.md"])
def test_paths_in_the_code_exist(page: str) -> None:
    """The files and folders that a page about the code names from the root of the repository exist."""
    text = (ROOT / page).read_text(encoding="utf-8")
    tops = "scheduler_core|operator|tests|hack|benchmarks"
    named = re.findall(rf"`((?:{tops})/[\w/]*(?:\.py)?)`", text)
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("contract", "heading"), [("core-layers", "The core, "), ("operator-layers", "The operator, ")]
)
def test_the_tables_of_packages_have_the_order_of_the_import_contract(contract: str, heading: str) -> None:
    """A row of a table in architecture.md imports only from itself and the rows below, and no package is missing."""
    text = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Where things are")[2].partition(f"\n{heading}")[2].partition("|---|---|\n")[2]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.partition("\n\n")[0].splitlines()]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (each["layers"] for each in contracts["contracts"] if each["id"] == contract)
    place = {name: at for at, layer in enumerate(layers) for name in layer.split(" | ")}
    assert {name for row in rows for name in row} == place.keys() - {"__main__"}
    places = [place[name] for row in rows for name in row]
    assert places == sorted(places)


def test_the_modules_that_the_architecture_names_exist() -> None:
    """The modules that architecture.md and the design notes name exist; names omit the top-level package."""
    docs = ROOT / "docs"
    notes = [docs / "internals" / "architecture.md", *sorted((docs / "design").glob("*.md"))]
    text = "\n".join(note.read_text(encoding="utf-8") for note in notes)
    roots = (ROOT / "scheduler_core", ROOT / "operator" / "bayplan")
    packages = {path.name for root in roots for path in root.iterdir() if path.is_dir()}
    named = {name for name in re.findall(r"`((?:[a-z_]+\.)+[a-z_]+)`", text) if name.split(".")[0] in packages}
    assert len(named) > 20
    paths = [(name, root / name.replace(".", "/")) for name in sorted(named) for root in roots]
    assert named - {name for name, path in paths if path.is_dir() or path.with_suffix(".py").is_file()} == set()


RULES = ROOT / "charts" / "bayplan" / "alerts" / "bayplan.yaml"
ALERTS = {
    rule["alert"]: rule["annotations"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


@pytest.mark.parametrize("alert", [pytest.param(name, id=name) for name in ALERTS])
def test_an_alert_has_its_runbook(alert: str) -> None:
    """The address of a runbook is the page of this release, and its anchor the section of the alert."""
    page, _, anchor = ALERTS[alert]["runbook_url"].partition("#")
    assert page == "docs/reference/alerts.md"
    assert anchor == alert.lower()
    assert anchor in Page(ROOT / "docs/reference/alerts.md").anchors
