"""The commands of the pages work and print the output that the pages show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane import binaries
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import NATIVE_GROUPS
from hack.controlplane.schedulers import install_crds
from tests.docs.markdown import COMMAND_LANGUAGES, Block, Page, pages
from tests.docs.reader import Paths, Reader, install_example_plugins
from tests.support.operator_process import OperatorProcess

PAGES = pages()
COMMANDS = {page.name: [block for block in page.blocks if block.language in COMMAND_LANGUAGES] for page in PAGES}

SKIPPED = {
    "README.md": 2,
    "charts/bayplan/README.md": 2,
    "docs/operate/extenders.md": 1,
    "docs/operate/metrics.md": 2,
    "docs/operate/page.md": 1,
    "docs/operate/releases.md": 4,
    "docs/operate/upgrade.md": 2,
    "docs/internals/parity.md": 1,
    "docs/internals/performance.md": 7,
    "docs/write-a-plugin.md": 2,
    "docs/install.md": 2,
    "docs/bin-packing.md": 1,
    "docs/with-kueue.md": 1,
    "docs/would-it-fit.md": 1,
    "docs/reservations.md": 2,
    "docs/migrate/from-the-default-scheduler.md": 1,
    "docs/migrate/from-volcano.md": 1,
    "docs/internals/testing.md": 3,
    "examples/plugins/README.md": 2,
}
"""Number of blocks of a page that are not run; the marker of each gives the reason."""

_MARKER = re.compile(r"run|exit (?P<code>\d+)|skip: (?P<reason>\S.{9,})")


def _treatment(block: Block) -> re.Match[str]:
    found = _MARKER.fullmatch(block.marker)
    assert found, f'{block.place}: marker "{block.marker}" is unknown; use run, exit N, or "skip: " and a reason'
    return found


RUN = {name: [block for block in blocks if _treatment(block)["reason"] is None] for name, blocks in COMMANDS.items()}


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Start a reader with a separate cluster, since the objects in the pages have fixed names."""
    try:
        helm = binaries.resolve(["helm"])["helm"]
    except binaries.MissingBinary as problem:
        if os.environ.get("CI"):
            pytest.fail(str(problem), pytrace=False)
        pytest.skip(str(problem))
    installed = install_example_plugins(tmp_path_factory.mktemp("installed"))
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    paths = Paths(tmp_path_factory.mktemp("reader"), log, installed)
    # Kubernetes' own PodGroups are served, so that a page may not call Bayplan's by an ambiguous name.
    native = NATIVE_GROUPS.get(binaries.selected_minor())
    with ControlPlane(None if native is None else native.options) as plane:
        plane.start_kwok()
        install_crds(plane)
        plane.kubectl("create", "namespace", "bayplan")
        flags = ["--namespace=bayplan", "--leader-elect", "--enable-profiling", "--advertise-address=127.0.0.1"]
        with (
            OperatorProcess(plane.kubeconfig, log, flags, installed) as leader,
            OperatorProcess(plane.kubeconfig, log.with_name("standby.log"), flags, installed) as standby,
        ):
            leader.start()
            leader.until(lambda: leader.metric("bayplan_leader", lease="bayplan/bayplan") == 1, "the replica leads")
            standby.start()
            yield Reader(plane, (leader, standby), helm, paths)


@pytest.mark.kwok
@pytest.mark.cluster
@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if RUN[page.name]])
def test_the_commands_of_a_page_work(page: Page, reader: Reader) -> None:
    """Each command of the page's blocks ends with exit code 0, or the marker's, and prints the shown output."""
    reader.begin(page)
    for block in RUN[page.name]:
        reader.follow(block, int(_treatment(block)["code"] or 0))


@pytest.mark.kwok
@pytest.mark.cluster
def test_exec_commands_are_run_on_each_replica(reader: Reader, tmp_path: Path) -> None:
    """A command by kubectl exec is run on each replica, because it may work on the leader only."""
    servers = tmp_path / "servers"
    command = f"kubectl exec deploy/bayplan -- sh -c 'echo $DOCS_SERVER >>{servers}'"
    reader.follow(Block("a page", 1, "sh", command, "run"), 0)
    assert servers.read_text().split() == reader.replicas
    assert len(reader.replicas) == 2


def test_every_block_has_a_language() -> None:
    """Every fence has a language, because a block without one could hide commands that are not run."""
    without_language = [block.place for page in PAGES for block in page.blocks if not block.language]
    assert without_language == []


def test_skipped_blocks_are_listed() -> None:
    """SKIPPED has the number of skipped blocks of each page, so that a new one is noticed."""
    skipped = {
        name: count
        for name, blocks in COMMANDS.items()
        if (count := sum(_treatment(block)["reason"] is not None for block in blocks))
    }
    assert skipped == SKIPPED
