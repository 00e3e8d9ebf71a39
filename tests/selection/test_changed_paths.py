"""The selection of tests by changed paths leaves out only tests of unchanged parts, and nothing when in doubt."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.selection.changed_paths import LIST, ROOT, PathLists, contains, select
from tests.support.tables import table

_LISTS = PathLists.read()
_GROUPS = set(_LISTS.groups)
_TRACKED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    check=True,
    capture_output=True,
    text=True,
).stdout.splitlines()
_FOLLOWED = ("tests/", "hack/", "benchmarks/", "examples/")


@table(
    "changed, left_out",
    ("core", ["scheduler_core/plugins/node_ports.py"], {"image", "charts", "page"}),
    ("operator", ["operator/bayplan/page/assets/app.mjs"], set()),
    ("docs", ["docs/gangs/README.md"], {"image", "charts", "page", "benchmarks", "release", "peers"}),
    ("chart", ["charts/bayplan/values.yaml"], {"page", "benchmarks"}),
    ("CRD", ["crds/podgroups.yaml"], set()),
    ("benchmark", ["benchmarks/core.py"], {"image", "charts", "docs", "page", "release", "peers"}),
    ("law", ["tests/laws/test_nulls.py", "CHANGELOG.md"], _GROUPS),
    ("test-of-a-group", ["tests/page/page_server.py"], {"image", "charts", "docs", "benchmarks", "release", "peers"}),
    ("law-and-image", ["tests/laws/test_nulls.py", "Dockerfile"], _GROUPS - {"image", "release"}),
    ("control-plane", ["hack/controlplane/launcher.py"], set()),
    ("demonstration", ["hack/demo/gangs.py"], _GROUPS - {"docs"}),
    ("dependencies", ["uv.lock"], set()),
    ("fixtures-of-all-tests", ["tests/conftest.py", "tests/laws/test_nulls.py"], set()),
    ("the-list", [LIST], set()),
    ("in-no-list", ["tests/laws/test_nulls.py", "new_part/module.py"], set()),
)
def test_tests_of_unchanged_parts_are_left_out(changed: list[str], left_out: set[str]) -> None:
    """The tests of a group are left out if no path of its list changed."""
    expected = {test for name in left_out for test in _LISTS.groups[name]["tests"]}
    assert set(_LISTS.selection(changed).left_out) == expected


def test_each_file_is_in_a_list_and_each_entry_names_a_file() -> None:
    """No file is forgotten, and no entry is left of a file that was moved."""
    groups = [path for group in _LISTS.groups.values() for path in (*group["paths"], *group["tests"])]
    entries = [*_LISTS.everything, *_LISTS.elsewhere, *groups]
    assert [path for path in _TRACKED if not contains(entries, path)] == []
    assert [entry for entry in entries if not any(contains([entry], path) for path in _TRACKED)] == []


@pytest.mark.parametrize("group", sorted(_GROUPS))
def test_a_group_lists_what_its_tests_import(group: str) -> None:
    """A list contains the tests and each module that they import, directly or by modules beside the product."""
    lists = _LISTS.groups[group]
    listed = (*_LISTS.everything, *lists["paths"])
    tests = [path for path in _TRACKED if path.endswith(".py") and contains(lists["tests"], path)]
    assert tests
    assert sorted(path for path in _imported(tests) if not contains(listed, path)) == []


def _imported(paths: list[str]) -> set[str]:
    """Return the files that are imported, transitively except through scheduler_core and operator."""
    by_module = {_module(path): path for path in _TRACKED if path.endswith(".py")}
    found: set[str] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            if path.startswith(_FOLLOWED):
                waiting += [by_module[name] for name in _imports(path) if name in by_module]
    return found


def _module(path: str) -> str:
    for root in ("operator/", "examples/plugins/"):
        path = path.removeprefix(root)
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(path: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class _Repository:
    """A git repository with the lists of this one and a commit that ``main`` names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", path], check=True)
        self.write(LIST, (ROOT / LIST).read_text(encoding="utf-8"))
        self.write("charts/bayplan/values.yaml", "replicas: 1\n")
        self.write("tests/laws/test_nulls.py", "")
        self.commit()
        self.git("checkout", "--quiet", "-b", "topic")

    def git(self, *arguments: str) -> None:
        """Run git without the configuration of the machine."""
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", self.path, *identity, *arguments], check=True, capture_output=True)

    def write(self, name: str, text: str) -> None:
        """Write a file of the work tree."""
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(text, encoding="utf-8")

    def commit(self) -> None:
        """Commit all changes."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Change")


@pytest.fixture
def repository(tmp_path: Path) -> _Repository:
    """Create a repository, on a branch without changes."""
    return _Repository(tmp_path / "repository")


def _law(repository: _Repository) -> None:
    repository.write("tests/laws/test_nulls.py", "pass\n")


def _law_and_commit(repository: _Repository) -> None:
    _law(repository)
    repository.commit()


def _chart_two_commits_ago(repository: _Repository) -> None:
    repository.write("charts/bayplan/values.yaml", "replicas: 2\n")
    repository.commit()
    _law_and_commit(repository)


def _chart_in_the_work_tree(repository: _Repository) -> None:
    _law_and_commit(repository)
    repository.write("charts/bayplan/values.yaml", "replicas: 2\n")


def _new_file_without_commit(repository: _Repository) -> None:
    _law_and_commit(repository)
    repository.write("charts/bayplan/templates/näw file.yaml", "")


def _deleted_chart(repository: _Repository) -> None:
    _law_and_commit(repository)
    (repository.path / "charts/bayplan/values.yaml").unlink()
    repository.commit()


def _chart_moved_elsewhere(repository: _Repository) -> None:
    repository.git("mv", "charts/bayplan/values.yaml", "tests/laws/values.yaml")
    repository.commit()


def _main_with_another_chart(repository: _Repository) -> None:
    _law_and_commit(repository)
    repository.git("checkout", "--quiet", "main")
    repository.write("charts/bayplan/values.yaml", "replicas: 2\n")
    repository.commit()
    repository.git("checkout", "--quiet", "topic")


@table(
    "change, runs",
    ("law-without-commit", _law, False),
    ("law", _law_and_commit, False),
    ("two-commits", _chart_two_commits_ago, True),
    ("work-tree", _chart_in_the_work_tree, True),
    ("new-file", _new_file_without_commit, True),
    ("deleted-file", _deleted_chart, True),
    ("moved-file", _chart_moved_elsewhere, True),
    ("main-has-changed-since", _main_with_another_chart, False),
)
def test_changes_since_the_merge_base(
    repository: _Repository, change: Callable[[_Repository], None], runs: bool
) -> None:
    """Commits, the work tree and new files are compared with the merge base."""
    change(repository)
    assert ("tests/charts/" not in select("main", repository.path).left_out) is runs


def _no_change(_repository: _Repository) -> None:
    """Leave the branch equal to main."""


def _shallow_clone(repository: _Repository) -> None:
    _law_and_commit(repository)
    clone = repository.path.with_name("clone")
    repository.git("clone", "--quiet", "--depth=1", "--no-single-branch", repository.path.as_uri(), str(clone))
    repository.path = clone
    repository.git("branch", "main", "origin/main")


def _unrelated_main(repository: _Repository) -> None:
    _law_and_commit(repository)
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.commit()
    repository.git("branch", "--force", "main")
    repository.git("checkout", "--quiet", "topic")


def _no_main(repository: _Repository) -> None:
    _law_and_commit(repository)
    repository.git("branch", "--delete", "--force", "main")


def _no_repository(repository: _Repository) -> None:
    (repository.path / ".git").rename(repository.path.with_name("moved"))


@table(
    "change, reason",
    ("main-itself", _no_change, "nothing differs from main"),
    ("shallow-clone", _shallow_clone, "the clone is shallow"),
    ("no-merge-base", _unrelated_main, "git merge-base HEAD main fails: no result"),
    ("no-main", _no_main, "git merge-base HEAD main fails: fatal: Not a valid object name main"),
    ("no-git", _no_repository, "git rev-parse --is-shallow-repository fails: fatal: not a git"),
)
def test_all_tests_run_if_the_changes_are_unknown(
    repository: _Repository, change: Callable[[_Repository], None], reason: str
) -> None:
    """Nothing is left out, and the reason is reported."""
    change(repository)
    selection = select("main", repository.path)
    assert selection.left_out == ()
    assert selection.reason.startswith(f"all, because {reason}")


def test_all_tests_run_without_git(repository: _Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without git runs all tests."""
    _law_and_commit(repository)
    monkeypatch.setenv("PATH", "/nonexistent")
    selection = select("main", repository.path)
    assert selection.left_out == ()
    assert selection.reason.startswith("all, because git does not start")


@table(
    "options, collected",
    ("changed", ["--changed-from=main"], ["tests/laws/test_nulls.py"]),
    ("all", [], ["tests/laws/test_nulls.py", "tests/charts/test_chart.py"]),
    ("nightly", ["--changed-from=main", "--nightly"], ["tests/laws/test_nulls.py", "tests/charts/test_chart.py"]),
)
def test_pytest_collects_the_selection(repository: _Repository, options: list[str], collected: list[str]) -> None:
    """Pytest deselects what is left out; without the option and at night, it runs all tests, laws first."""
    copied = ("pyproject.toml", "tests/conftest.py", "tests/selection/changed_paths.py")
    for name in copied:
        repository.write(name, (ROOT / name).read_text(encoding="utf-8"))
    for name in ("tests/charts/test_chart.py", "tests/laws/test_nulls.py"):
        repository.write(name, "def test_one() -> None: ...\n")
    (repository.path / "tests/upstream").mkdir()
    for name in ("tests/support", "tests/upstream/builds.py"):
        (repository.path / name).symlink_to(ROOT / name)
    repository.commit()
    repository.git("branch", "--force", "main")
    repository.write("tests/laws/test_nulls.py", "def test_one() -> None: pass\n")
    # Bytecode would be new files of the repository, which has no .gitignore.
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "operator")]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *options],
        cwd=repository.path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert [line for line in done.stdout.splitlines() if "::" in line] == [f"{path}::test_one" for path in collected]
