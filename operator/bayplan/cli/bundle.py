"""``bayplan bundle``: writes what a ticket needs into one archive.

A part that cannot be read is listed with the reason, and the others are written: a bundle is made when something is
wrong. It never contains secrets, and no names of objects if the user requests that. Values are removed by the name of
their field, and texts that look like credentials wherever they are. When in doubt a value is removed: a bundle without
a harmless value is still useful.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import re
import secrets
import sys
import tarfile
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from bayplan import REFERENCE_VERSION, __version__
from bayplan.cli.object_names import NAMES
from bayplan.cli.operator_location import PORT_LABEL, ClusterChoice, OperatorChoice, kubeconfig_options
from bayplan.cli.operator_requests import OperatorRequest, operator_options, send_to_operator
from bayplan.introspection.status_rendering import RENDERERS, read_status
from bayplan.kube.http.api_request import ApiRequest, path_part
from bayplan.kube.http.connection import ApiConnection, ListPage, list_pages
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.process.log_output import redacted
from bayplan.serving import CACHE_PATH, STATUS_PATH
from bayplan.texts.document_formats import counted
from scheduler_core.errors import ConfigError, NotFoundError, Problem, SchedulerCoreError

_LOG_BYTES = 10 << 20
_SECONDS = 60.0
_OBJECTS = {
    "schedulerprofiles": "/apis/bayplan.dev/v1alpha1/schedulerprofiles",
    "pluginconfigs": "/apis/bayplan.dev/v1alpha1/pluginconfigs",
    "podgroups": "/apis/bayplan.dev/v1alpha1/podgroups",
    "nodereservations": "/apis/bayplan.dev/v1alpha1/nodereservations",
    "rebalanceplans": "/apis/bayplan.dev/v1alpha1/rebalanceplans",
}
_NAMED = ("/api/v1/nodes", "/api/v1/pods", *_OBJECTS.values())
_NAMED_IF_READABLE = ("/api/v1/persistentvolumeclaims", "/apis/resource.k8s.io/v1/resourceclaims")
_TIMES = click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"])


_DOCUMENTS = ObjectJsonDecoder(ListPage[dict[str, Any]])


@dataclass(slots=True)
class _Contents:
    """Files of the archive by their path, and the parts that could not be read.

    Documents and texts are stored without secrets.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    documents: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add_document(self, path: str, document: Any) -> None:
        self.documents[path] = without_secrets(document)

    def add_text(self, path: str, text: str) -> None:
        self.texts[path] = redacted(text)

    def attempt(self, part: str, read: Callable[[], None]) -> None:
        """Read a part; an error is noted."""
        try:
            read()
        except SchedulerCoreError as error:
            self.missing[part] = redacted(str(error))

    async def attempt_reading(self, part: str, read: Awaitable[None]) -> None:
        try:
            await read
        except SchedulerCoreError as error:
            self.missing[part] = redacted(str(error))

    def rendered(self, names: HashedNames | None) -> dict[str, bytes]:
        """Return every file with its content, with hashed names if requested."""
        documents, texts = self.documents, self.texts
        if names is not None:
            documents = {names.in_text(path): names.in_document(each) for path, each in documents.items()}
            texts = {names.in_text(path): names.in_text(each) for path, each in texts.items()}
        found = {path: _as_bytes(path, each) for path, each in documents.items()}
        found |= {path: each.encode(errors="replace") for path, each in texts.items()}
        return {**found, **self.files}


def _as_bytes(path: str, document: Any) -> bytes:
    if path.endswith(".json"):
        return json.dumps(document, indent=2).encode()
    return yaml.safe_dump(document, sort_keys=False).encode()


@click.command(short_help="Write one archive for a ticket.")
@operator_options
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Archive to write; - for standard output.  [default: bayplan-bundle-TIME.tar.gz]",
)
@click.option("--hash-names", is_flag=True, help="Replace names of namespaces, nodes, pods and gangs by hashes.")
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Also include the record in this file or directory.",
)
@click.option("--record-until", type=_TIMES, help="End of the included record, UTC, such as 2026-11-23T04:00:00Z.")
@kubeconfig_options
def bundle(
    *,
    server: str | None,
    operator: str,
    output: str | None,
    hash_names: bool,
    record: Path | None,
    record_until: datetime | None,
    cluster: ClusterChoice,
) -> None:
    """Write the state, metrics, settings and logs of the operator and its custom resources into one archive.

    The archive contains versions, status, readiness, metrics, the comparison of the cache with the API server, the
    custom resources of Bayplan, and the settings, state and logs of the operator's pods. README.txt in it lists the
    parts that could not be read, with the reasons.

    Secrets are never included: Secret objects are not read, and values of environment variables, annotations, keys,
    certificates, tokens and passwords are removed. With --hash-names names are replaced by hashes with a random key,
    and a record cannot be included, because it does not replay with other names.

    In the operator's pod, write to standard output: kubectl exec POD -- bayplan bundle -o - > bundle.tar.gz
    """
    if record is not None and hash_names:
        raise ConfigError([Problem("--record", "a record contains names; leave out --hash-names or --record")])
    if record_until is not None and record is None:
        raise ConfigError([Problem("--record-until", "requires --record")])
    made = datetime.now(UTC)
    choice = OperatorChoice(server, operator, cluster)
    contents = _Contents()
    contents.add_document("versions.json", {"bayplan": __version__, "referenceKubeScheduler": REFERENCE_VERSION})
    _read_operator(contents, choice)
    names = _read_cluster(contents, choice, hash_names=hash_names)
    if record is not None:
        _read_record(contents, record, record_until)
    if len(contents.documents) + len(contents.texts) + len(contents.files) == 1:
        reasons = "; ".join(dict.fromkeys(contents.missing.values()))
        raise ConfigError([Problem("bundle", f"nothing can be read: {reasons}")])
    files = contents.rendered(names)
    files["README.txt"] = _readme(made, files, contents.missing, names).encode()
    name = f"bayplan-bundle-{made:%Y%m%dT%H%M%SZ}"
    archive = _archive(name, made, files)
    if output == "-":
        sys.stdout.buffer.write(archive)
        return
    target = Path(output or f"{name}.tar.gz")
    try:
        target.write_bytes(archive)
    except OSError as error:
        raise ConfigError([Problem("--output", f"cannot write to {target} ({error}); specify another file")]) from error
    count = len(contents.missing)
    missing = f", {counted(count, 'part')} could not be read (see README.txt in it)" if count else ""
    click.echo(f"{len(files)} files{missing}: {target}")


def _read_operator(contents: _Contents, choice: OperatorChoice) -> None:
    def get(path: str, **params: str) -> bytes:
        return send_to_operator(OperatorRequest(choice, path, params))

    def read_status_files() -> None:
        answer = get(STATUS_PATH, limit="200")
        contents.add_document("status.json", msgspec.json.decode(answer))
        contents.add_text("status.txt", RENDERERS["table"](read_status(answer)))

    def read_text(path: str, file: str, **params: str) -> Callable[[], None]:
        return lambda: contents.add_text(file, get(path, **params).decode(errors="replace"))

    contents.attempt("status", read_status_files)
    contents.attempt("readiness", read_text("/readyz", "readyz.txt", verbose="true"))
    contents.attempt("metrics", read_text("/metrics", "metrics.txt"))
    contents.attempt(
        "comparison of the cache with the API server",
        lambda: contents.add_document("cache.json", msgspec.json.decode(get(CACHE_PATH))),
    )


def _read_cluster(contents: _Contents, choice: OperatorChoice, *, hash_names: bool) -> HashedNames | None:
    """Read what the API server has.

    Returns:
        The names to hash; None if they are not hashed.

    Raises:
        SchedulerCoreError: The names to hash cannot be listed.
    """

    async def read(connection: ApiConnection) -> HashedNames | None:
        names = await _names(connection) if hash_names else None
        await contents.attempt_reading("version of the API server", _read_version(connection, contents))
        for kind, path in _OBJECTS.items():
            await contents.attempt_reading(kind, _read_objects(connection, contents, kind, path))
        await contents.attempt_reading("pods of the operator", _read_pods(connection, contents, choice.operator))
        return names

    try:
        return choice.cluster.run(read)
    except ConfigError as error:
        if hash_names:
            raise
        contents.missing["objects of the cluster"] = redacted(str(error))
        return None


async def _names(connection: ApiConnection) -> HashedNames:
    names, namespaces, owners = set[str](), set[str](), set[str]()
    for path in ("/api/v1/namespaces", *_NAMED, *_NAMED_IF_READABLE):
        try:
            pages = list_pages(connection, path, NAMES, seconds=_SECONDS)
            found = [each.metadata async for page in pages for each in page.items or ()]
        except NotFoundError:
            continue
        except SchedulerCoreError:
            if path in _NAMED_IF_READABLE:
                continue
            raise
        if path == "/api/v1/namespaces":
            namespaces.update(each.name for each in found)
        names.update(each.name for each in found)
        owners.update(owner.name for each in found for owner in each.owner_references)
    return HashedNames(names, namespaces, owners - names if owners <= names else owners)


async def _get(connection: ApiConnection, path: str, **params: str) -> bytes:
    return await connection.request(ApiRequest("GET", path, params=tuple(params.items()), timeout=_SECONDS))


async def _read_version(connection: ApiConnection, contents: _Contents) -> None:
    contents.add_document("api-server-version.json", msgspec.json.decode(await _get(connection, "/version")))


async def _list(connection: ApiConnection, path: str, **params: str) -> list[dict[str, Any]]:
    pages = list_pages(connection, path, _DOCUMENTS, params=tuple(params.items()), seconds=_SECONDS)
    return [each async for page in pages for each in page.items or ()]


async def _read_objects(connection: ApiConnection, contents: _Contents, kind: str, path: str) -> None:
    contents.add_document(f"objects/{kind}.yaml", await _list(connection, path))


async def _read_pods(connection: ApiConnection, contents: _Contents, operator: str) -> None:
    """Read the operator's pods, their settings, events and logs."""
    namespace = operator.partition("/")[0]
    path = f"/api/v1/namespaces/{path_part(namespace)}/pods" if namespace else "/api/v1/pods"
    pods = await _list(connection, path, labelSelector=PORT_LABEL)
    if not pods:
        raise NotFoundError(f"no pod has the label {PORT_LABEL}")
    contents.add_document("operator/pods.yaml", pods)
    for own in sorted({pod["metadata"]["namespace"] for pod in pods}):
        events = f"/api/v1/namespaces/{path_part(own)}/events"
        await contents.attempt_reading(f"events of {own}", _read_objects(connection, contents, f"events/{own}", events))
    for pod in pods:
        await _read_settings(connection, contents, pod)
        await _read_logs(connection, contents, pod)


async def _read_settings(connection: ApiConnection, contents: _Contents, pod: Mapping[str, Any]) -> None:
    namespace = pod["metadata"]["namespace"]
    maps = ((volume.get("configMap") or {}).get("name") for volume in pod["spec"].get("volumes") or ())
    for name in filter(None, maps):
        part = f"operator/settings/{namespace}/{name}.yaml"
        if part not in contents.documents and name != "kube-root-ca.crt":
            await contents.attempt_reading(part, _read_config_map(connection, contents, part, (namespace, name)))


async def _read_config_map(connection: ApiConnection, contents: _Contents, part: str, of: tuple[str, str]) -> None:
    path = f"/api/v1/namespaces/{path_part(of[0])}/configmaps/{path_part(of[1])}"
    found = msgspec.json.decode(await _get(connection, path))
    documents = {}
    for file, text in (found.get("data") or {}).items():
        # Decoded, so that values are removed by the names of their fields.
        documents[file] = _settings_of(text)
    contents.add_document(part, documents)


def _settings_of(text: str) -> Any:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        document = None
    return document if isinstance(document, dict) else "[no mapping in YAML, left out]"


async def _read_logs(connection: ApiConnection, contents: _Contents, pod: Mapping[str, Any]) -> None:
    meta = pod["metadata"]
    statuses = {each["name"]: each for each in (pod.get("status") or {}).get("containerStatuses") or ()}
    for container in pod["spec"]["containers"]:
        name = container["name"]
        runs = ("", "previous") if statuses.get(name, {}).get("restartCount") else ("",)
        for run in runs:
            part = ".".join(filter(None, (meta["name"], name, run, "log")))
            await contents.attempt_reading(f"logs/{part}", _read_log(connection, contents, pod, (name, run, part)))


async def _read_log(
    connection: ApiConnection, contents: _Contents, pod: Mapping[str, Any], of: tuple[str, str, str]
) -> None:
    meta, (container, run, part) = pod["metadata"], of
    path = f"/api/v1/namespaces/{path_part(meta['namespace'])}/pods/{path_part(meta['name'])}/log"
    params = {"container": container, "limitBytes": str(_LOG_BYTES), "tailLines": "50000"}
    if run:
        params["previous"] = "true"
    contents.add_text(f"logs/{part}", (await _get(connection, path, **params)).decode(errors="replace"))


def _read_record(contents: _Contents, path: Path, until: datetime | None) -> None:
    # Imported here because the scheduler is imported with it, and only a record needs it.
    from bayplan.cli.record import cut_record  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "record.bpr"
        if cut_record(path, target, until):
            contents.files["record.bpr"] = target.read_bytes()
        else:
            contents.missing["record"] = "the record has no entry before --record-until"


def _readme(made: datetime, files: Mapping[str, bytes], missing: Mapping[str, str], names: HashedNames | None) -> str:
    lines = [f"Bundle of Bayplan {__version__}, {made:%Y-%m-%d %H:%M:%S} UTC", ""]
    lines += [f"  {path}  {len(content)} bytes" for path, content in sorted(files.items())]
    if missing:
        hide = (lambda text: text) if names is None else names.in_text
        lines += [
            "",
            "Parts that could not be read:",
            *(f"  {hide(part)}: {hide(why)}" for part, why in missing.items()),
        ]
    lines += ["", "Secrets are removed: values of environment variables, annotations, keys, tokens and passwords."]
    if names is not None:
        lines.append(
            "Names of objects that existed when the bundle was made, names after a namespace, and IP addresses are "
            "replaced by hashes. Labels and names of objects that were deleted earlier may remain in logs: check them."
        )
    return "\n".join([*lines, ""])


def _archive(name: str, made: datetime, files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime, entry.mode = len(content), int(made.timestamp()), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


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
