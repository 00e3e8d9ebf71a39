"""Findings of ``bayplan validate`` for the mistakes of first users; ``tests/cluster`` tests those of a cluster."""

from __future__ import annotations

from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from tests.support.common_mistakes import MISTAKES, Mistake, mistakes
from tests.support.tables import table

INPUT = "standard input:"
NAMESPACED = next(each for each in MISTAKES if each.name == "namespace of a profile")


def validate(manifest: str, *flags: str) -> Result:
    return CliRunner().invoke(bayplan, ["validate", *flags, "-"], input=manifest)


@mistakes()
def test_findings(mistake: Mistake) -> None:
    """Each mistake is reported with its line, its field and the remedy."""
    *findings, _ = validate(mistake.manifest).output.splitlines()
    assert tuple(line.replace(INPUT, "") for line in findings) == mistake.validate


@mistakes()
def test_exit_code(mistake: Mistake) -> None:
    """The exit code is 1 after an error, 2 for a file that is not YAML, and 0 otherwise."""
    is_unreadable = any("is not YAML" in line for line in mistake.validate)
    has_error = any(": error: " in line for line in mistake.validate)
    assert validate(mistake.manifest).exit_code == (2 if is_unreadable else int(has_error))


@mistakes(accepted=False)
def test_what_the_server_rejects_is_an_error(mistake: Mistake) -> None:
    """An object that the API server rejects is an error in the file too, unless the cluster lacks its kind."""
    is_of_another_api = "no matches for kind" in mistake.apply
    assert is_of_another_api or validate(mistake.manifest).exit_code


@table("flags", ("default", []), ("strict", ["--strict"]))
def test_a_namespace_of_a_profile_is_a_note(flags: list[str]) -> None:
    """A namespace is no error with --strict either, because Kustomize sets it in every custom resource."""
    result = validate(NAMESPACED.manifest, *flags)
    assert (result.exit_code, result.output.count(": note: metadata.namespace: has no effect")) == (0, 1)


def test_a_file_that_is_not_yaml_has_no_result() -> None:
    """The summary does not claim that there are no problems if nothing else was read."""
    broken = next(each for each in MISTAKES if each.name == "invalid YAML")
    assert validate(broken.manifest).output.splitlines()[-1] == "no objects validated: 1 file could not be read"
