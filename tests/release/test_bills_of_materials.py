"""The bills of materials: valid in both formats, complete, and the same in each build."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from hack.image.image_build import Provenance
from hack.release import locked_dependencies, statements
from hack.release.__main__ import write_bills
from hack.release.bills_of_materials import LICENSE
from hack.release.locked_dependencies import ReleaseError, license_of

ROOT = Path(__file__).resolve().parents[2]
_CHECKED_URLS = 3
ORIGIN = Provenance("0.1.0", "0" * 40, 1_700_000_000, "https://git.example/bayplan")


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the bills of materials."""
    directory = tmp_path_factory.mktemp("bills")
    write_bills(ORIGIN, directory)
    return directory


def test_a_second_build_has_the_same_bytes(bills: Path, tmp_path: Path) -> None:
    """Every document of a second build equals that of the first."""
    write_bills(ORIGIN, tmp_path)
    first, second = ({path.name: path.read_bytes() for path in each.iterdir()} for each in (bills, tmp_path))
    assert len(first) == 4
    assert first == second


@pytest.mark.parametrize("name", ["bayplan-0.1.0.cdx.json", "bayplan-0.1.0.vex.cdx.json"])
def test_cyclonedx_is_valid(bills: Path, name: str) -> None:
    """The documents match the schema of CycloneDX."""
    document = json.loads((bills / name).read_text())
    # The validator takes long for each of thousands of URLs, which have one form.
    for index, each in enumerate(document.get("components", ())):
        each["externalReferences"] = each["externalReferences"][: 1 if index < _CHECKED_URLS else 0]
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document)) is None


def test_an_accepted_vulnerability_is_valid(bills: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accepted vulnerability is in the document with its reason."""
    allowed = tmp_path / "hack" / "checks" / "audit_allowed.toml"
    allowed.parent.mkdir(parents=True)
    allowed.write_text('[[allowed]]\nid = "GHSA-aaaa-bbbb-cccc"\nreason = "The code is not called."\n')
    monkeypatch.setattr(statements, "ROOT", tmp_path)
    document = statements.vex(json.loads((bills / "bayplan-0.1.0.cdx.json").read_text()), ORIGIN)
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(document)) is None
    (found,) = document["vulnerabilities"]
    assert found["analysis"] == {"state": "not_affected", "detail": "The code is not called."}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_spdx_is_valid(bills: Path) -> None:
    """The document matches the specification of SPDX, licence expressions included."""
    from spdx_tools.spdx.parser.parse_anything import parse_file  # noqa: PLC0415 - only this test needs it, for seconds
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document  # noqa: PLC0415

    document = parse_file(str(bills / "bayplan-0.1.0.spdx.json"))
    assert [each.validation_message for each in validate_full_spdx_document(document)] == []


def test_all_formats_have_the_locked_packages(bills: Path) -> None:
    """Both bills list every direct dependency in the locked version, and the same packages."""
    cyclonedx = json.loads((bills / "bayplan-0.1.0.cdx.json").read_text())
    spdx = json.loads((bills / "bayplan-0.1.0.spdx.json").read_text())
    listed = {(each["name"], each["version"]) for each in cyclonedx["components"]}
    assert listed | {("bayplan", "0.1.0")} == {(each["name"], each["versionInfo"]) for each in spdx["packages"]}
    locked = {
        (each["name"], each["version"])
        for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
        if "version" in each
    }
    assert listed < locked
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    assert direct <= {name for name, _ in listed}
    assert "pytest" not in {name for name, _ in listed}
    assert project["license"] == LICENSE
    assert ORIGIN.version == spdx["packages"][0]["versionInfo"]


def test_every_package_has_a_license_text(bills: Path) -> None:
    """The file of third-party licences names every package, and has the texts of those that are installed."""
    text = (bills / "bayplan-0.1.0.licenses.txt").read_text()
    components = json.loads((bills / "bayplan-0.1.0.cdx.json").read_text())["components"]
    assert [each["name"] for each in components if f"\n{each['name']} {each['version']}: " not in text] == []
    assert text.count("\n--- ") >= len(components)


def test_a_package_without_a_license_stops_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose metadata has no expression must be reviewed."""
    reviewed = tmp_path / "licenses.toml"
    reviewed.write_text("[expressions]\n")
    monkeypatch.setattr(locked_dependencies, "_REVIEWED", reviewed)
    with pytest.raises(ReleaseError, match="pyyaml has no licence expression"):
        license_of("pyyaml")
