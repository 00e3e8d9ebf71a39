"""Wheel and source distribution: the same bytes in each build, and a wheel that runs in a clean environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hack.image.image_build import Provenance
from hack.release.__main__ import build_distributions

ROOT = Path(__file__).resolve().parents[2]
ORIGIN = Provenance("0.1.0", "0" * 40, 1_700_000_000, "")
UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions."""
    directory = tmp_path_factory.mktemp("built")
    build_distributions(ORIGIN, directory)
    return directory


def test_a_second_build_has_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """Wheel and source distribution of a second build equal those of the first."""
    build_distributions(ORIGIN, tmp_path)
    first, second = ({path.name: path.read_bytes() for path in each.iterdir()} for each in (built, tmp_path))
    assert {Path(name).suffix for name in first} == {".whl", ".gz"}
    assert first == second


def test_the_wheel_simulates_a_file_in_a_clean_environment(built: Path, tmp_path: Path) -> None:
    """With the locked dependencies only, the installed command simulates a cluster from a file."""
    (wheel,) = built.glob("*.whl")
    requirements = tmp_path / "requirements.txt"
    _run(
        UV, "export", "--frozen", "--no-default-groups", "--no-emit-project", "--quiet", f"--output-file={requirements}"
    )
    environment = tmp_path / "environment"
    _run(UV, "venv", "--quiet", f"--python={sys.executable}", str(environment))
    python = environment / "bin" / "python"
    _run(UV, "pip", "install", "--quiet", f"--python={python}", "--no-build", f"--requirement={requirements}")
    _run(UV, "pip", "install", "--quiet", f"--python={python}", "--offline", "--no-deps", str(wheel))
    bayplan = environment / "bin" / "bayplan"
    shutil.copy(ROOT / "examples" / "simulate" / "cluster.yaml", tmp_path)
    answer = subprocess.run(
        [bayplan, "simulate", "cluster.yaml"], cwd=tmp_path, capture_output=True, text=True, env={}, check=False
    )
    assert answer.returncode == 0, answer.stderr
    expected = subprocess.run(
        [sys.executable, "-m", "bayplan", "simulate", "cluster.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}"},
        check=True,
    )
    assert answer.stdout == expected.stdout
    version = subprocess.run([bayplan, "--version"], capture_output=True, text=True, env={}, check=True)
    assert "0.1.0" in version.stdout


def test_the_wheel_has_the_files_of_the_page(built: Path) -> None:
    """Files that are no modules are in the wheel, and no tests are."""
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packaged = {name.partition("bayplan/page/assets/")[2] for name in names if "bayplan/page/assets/" in name}
    assets = ROOT / "operator" / "bayplan" / "page" / "assets"
    assert packaged == {path.relative_to(assets).as_posix() for path in assets.rglob("*") if path.is_file()}
    assert [name for name in names if name.startswith(("tests/", "hack/"))] == []


def _run(*command: str) -> None:
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
