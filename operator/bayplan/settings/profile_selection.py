"""Label selectors in the syntax of ``kubectl get -l``, and that of the SchedulerProfiles that a process serves.

The Lease of each selector has a digest in its name. The digest is that of the selector's text, trimmed but not parsed:
the Helm chart has to name the same Lease in its Role, and a template cannot parse a selector.

The grammar is that of ``k8s.io/apimachinery`` v0.37.1, ``labels.Parse``, without ``>`` and ``<``:

    KEY = VALUE   KEY == VALUE   KEY != VALUE   KEY in (A,B)   KEY notin (A,B)   KEY   !KEY

joined by commas; ``!=`` and ``notin`` match objects without the label too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from scheduler_core.errors import ConfigError, Problem, SelectorError
from scheduler_core.model.affinity import Requirement
from scheduler_core.model.selectors import (
    DOES_NOT_EXIST,
    EXISTS,
    IN,
    NOT_IN,
    LabelMatcher,
    LabelRequirement,
    compile_requirement,
)

MAX_LENGTH = 1024
_DIGEST_LETTERS = 8
_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!,()<>]|[^ \t\r\n=!,()<>]+)")
_SYMBOLS = frozenset({"==", "!=", "=", "!", ",", "(", ")", "<", ">"})
_END = ""
_SETS = {"in": IN, "notin": NOT_IN}
_EXACT = {"=": IN, "==": IN, "!=": NOT_IN}


class ProfileSelection:
    """The profiles of one process; raises ConfigError, with an empty path, if it cannot be parsed."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if not self.text:
            raise _problem("selects every profile; remove it to serve them all")
        if len(self.text) > MAX_LENGTH:
            raise _problem(f"has {len(self.text)} characters; use at most {MAX_LENGTH}")
        try:
            self._matcher = parse_label_selector(self.text)
        except SelectorError as error:
            raise _problem(f'"{self.text}" is not a label selector: {error}') from error

    @property
    def digest(self) -> str:
        """First eight hexadecimal digits of the SHA-256 of the selector's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:_DIGEST_LETTERS]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self._matcher.matches(labels)


def _problem(message: str) -> ConfigError:
    return ConfigError([Problem("", message)])


def parse_label_selector(text: str) -> LabelMatcher:
    """Parse a selector that is not empty; raises SelectorError."""
    return LabelMatcher(tuple(_Parser(text).requirements()))


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), _END]
        self._position = 0

    def requirements(self) -> list[LabelRequirement]:
        found = [self._requirement()]
        while self._next() == ",":
            found.append(self._requirement())
        self._position -= 1
        if self._next() != _END:
            self._position -= 1
            raise self._unexpected('a comma, such as in "tier=a,!old"')
        return found

    def _requirement(self) -> LabelRequirement:
        if self._peek() == "!":
            self._next()
            return compile_requirement(Requirement(self._word("a label key"), DOES_NOT_EXIST))
        key = self._word("a label key")
        sign = self._peek()
        if sign in (",", _END):
            return compile_requirement(Requirement(key, EXISTS))
        if sign in _EXACT:
            self._next()
            value = "" if self._peek() in (",", _END) else self._word("a value")
            return compile_requirement(Requirement(key, _EXACT[sign], (value,)))
        if sign in _SETS:
            self._next()
            return compile_requirement(Requirement(key, _SETS[sign], self._values()))
        raise self._unexpected(f'one of =, !=, in and notin after "{key}"')

    def _values(self) -> tuple[str, ...]:
        if self._peek() != "(":
            raise self._unexpected('values in parentheses, such as "(a,b)"')
        self._next()
        values = []
        while True:
            values.append("" if self._peek() in (",", ")") else self._word("a value"))
            sign = self._next()
            if sign == ")":
                return tuple(values)
            if sign != ",":
                self._position -= 1
                raise self._unexpected('a comma or ")" after a value')

    def _word(self, what: str) -> str:
        if self._peek() == _END or self._peek() in _SYMBOLS:
            raise self._unexpected(what)
        return self._next()

    def _peek(self) -> str:
        return self._tokens[self._position]

    def _next(self) -> str:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _unexpected(self, wanted: str) -> SelectorError:
        token = self._peek()
        found = f'"{token}"' if token else "the end"
        return SelectorError(f"found {found}, expected {wanted}")
