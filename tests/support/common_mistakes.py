"""Manifests with the mistakes that first users made, from ``common_mistakes.yaml``, which describes the fields."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec import Struct

_FILE = Path(__file__).with_suffix(".yaml")
_FINDING = re.compile(r"\d+: (?:error|warning): \S+(?: \S+)?: (.*)")


class Mistake(Struct, frozen=True, forbid_unknown_fields=True):
    """A mistake."""

    name: str
    manifest: str
    validate: tuple[str, ...] = ()
    apply: str = ""
    conditions: tuple[str, ...] = ()
    message: str = ""

    @property
    def object(self) -> str:
        """Kind and name of the last object, as its conditions are found by."""
        body = list(yaml.safe_load_all(self.manifest))[-1]
        return f"{body['kind']} {body['metadata']['name']}"

    @property
    def messages(self) -> list[str]:
        """What the messages of the conditions contain: the findings with their paths."""
        if self.message:
            return [self.message]
        return [found[1] for line in self.validate if (found := _FINDING.fullmatch(line))]


MISTAKES = msgspec.convert(yaml.safe_load(_FILE.read_text()), list[Mistake])


def mistakes(*, accepted: bool | None = None) -> pytest.MarkDecorator:
    """Run a test once for each mistake.

    Args:
        accepted: Only those that the API server accepts, or only those that it rejects.
    """
    chosen = [each for each in MISTAKES if accepted in (None, not each.apply)]
    return pytest.mark.parametrize("mistake", [pytest.param(each, id=each.name) for each in chosen])
