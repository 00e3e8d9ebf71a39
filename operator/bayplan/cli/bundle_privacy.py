"""What a bundle for a ticket must not contain: secrets, always, and the names of objects if the user requests it.

Values are removed by the name of their field, and texts that look like credentials wherever they are. When in doubt a
value is removed: a bundle without a harmless value is still useful.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bayplan.process.log_output import redacted

REDACTED = "[redacted]"

_SECRET_FIELD = re.compile(
    r"passw|secret|token|credential|authorization|bearer|api[-_]?key|private[-_]?key|key[-_]?data|cert[-_]?data|cookie",
    re.IGNORECASE,
)
_HARMLESS_SETTINGS = frozenset({"authorizeRequests", "serviceAccountToken"})
_KEPT_ANNOTATION = "kubernetes.io/change-cause"


def without_secrets(document: Any) -> Any:
    """Return a copy of a decoded document without values that may be secret.

    Values of fields with the name of a secret, of environment variables and of annotations are removed, and
    ``managedFields``; credentials within other texts are redacted.
    """
    match document:
        case dict():
            return {name: _field_without_secrets(name, value) for name, value in document.items() if _is_kept(name)}
        case list() | tuple():
            return [without_secrets(each) for each in document]
        case str():
            return redacted(document)
    return document


def _is_kept(name: str) -> bool:
    return name != "managedFields"


def _field_without_secrets(name: str, value: Any) -> Any:
    if name == "annotations" and isinstance(value, dict):
        return {key: redacted(str(text)) if key == _KEPT_ANNOTATION else REDACTED for key, text in value.items()}
    if name in ("env", "extraEnv") and isinstance(value, list):
        return [{"name": each.get("name"), "value": REDACTED} if isinstance(each, dict) else REDACTED for each in value]
    if _SECRET_FIELD.search(name) and name not in _HARMLESS_SETTINGS and value not in (None, "", [], {}):
        return REDACTED
    return without_secrets(value)


_TOKEN = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PART = re.compile(r"[A-Za-z0-9-]+")
_ADDRESS = re.compile(r"\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b")
_PUBLIC = frozenset(
    {"default", "kube-system", "kube-public", "kube-node-lease", "default-scheduler", "bayplan", "kube-scheduler"}
)
"""Names that every cluster has, or that Bayplan's chart gives."""


@dataclass(slots=True)
class HashedNames:
    """Replaces names by hashes, the same name by the same hash within one bundle.

    The key of the hashes is random and is not stored, so that a guess of a name cannot be tested.

    Args:
        names: Names of pods, nodes, gangs and other objects.
        namespaces: Names of namespaces; what follows one of them and a slash is the name of an object, too.
        owners: Names of owners, such as ReplicaSets, with which the names of their pods begin.
    """

    names: Iterable[str]
    namespaces: Iterable[str]
    owners: Iterable[str] = ()
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _all: frozenset[str] = field(init=False)
    _after_namespace: re.Pattern[str] = field(init=False)
    _prefixes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        namespaces = frozenset(self.namespaces)
        self._all = (frozenset(self.names) | frozenset(self.owners) | namespaces) - _PUBLIC - {""}
        # A namespace that every cluster has still precedes names that must be hashed.
        listed = "|".join(re.escape(each) for each in sorted(namespaces, key=len, reverse=True)) or r"(?!)"
        self._after_namespace = re.compile(rf"(?<![\w.-])({listed})/([A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?)")
        self._prefixes = tuple(f"{each}-" for each in sorted(frozenset(self.owners) - _PUBLIC - {""}))

    def hashed(self, name: str) -> str:
        """Return the hash of a name."""
        return f"h{hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()[:10]}"

    def in_text(self, text: str) -> str:
        """Replace names and addresses in a text."""
        text = self._after_namespace.sub(lambda found: f"{found[1]}/{self._own(found[2])}", text)
        text = _TOKEN.sub(lambda found: self._token(found[0]), text)
        return _ADDRESS.sub(lambda found: self.hashed(found[0]), text)

    def in_document(self, document: Any) -> Any:
        """Replace names in the values of a decoded document; a key that is a name is replaced, too."""
        match document:
            case dict():
                return {self.in_text(name): self.in_document(value) for name, value in document.items()}
            case list() | tuple():
                return [self.in_document(each) for each in document]
            case str():
                return self.in_text(document)
        return document

    def _own(self, name: str) -> str:
        return name if name in _PUBLIC or _is_hash(name) else self.hashed(name)

    def _token(self, token: str) -> str:
        if token in self._all or token.startswith(self._prefixes):
            return self._own(token)
        if "." in token or "_" in token:
            return _PART.sub(lambda found: self._part(found[0]), token)
        return token

    def _part(self, part: str) -> str:
        return self._own(part) if part in self._all or part.startswith(self._prefixes) else part


def _is_hash(name: str) -> bool:
    return re.fullmatch(r"h[0-9a-f]{10}", name) is not None
