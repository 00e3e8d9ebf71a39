"""Judges manifests as the API server and the operator together would.

Owns the order of the questions and what is known only of all files together. It must not hold a rule of its own: the
schema is that of the CustomResourceDefinitions, the rest are the models, the plugins and ``desired_state``, so that a
file is accepted here exactly if a cluster would run it.

Why each profile is judged alone: which of two profiles that claim a name is the older one is not written in a file, so
both are told of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bayplan.completed_configuration import offline_scheduler
from bayplan.kube_configuration import configuration_notes, configuration_problems
from bayplan.reconcile.desired_state import desired_state, missing_plugin_config
from bayplan.reconcile.plugin_configs import validate_plugin_configs
from bayplan.resources.crd_generation import RESOURCES, definition_of
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import API_VERSION, GROUP
from bayplan.validation.findings import Finding, Severity
from bayplan.validation.manifest_files import Manifest
from bayplan.validation.metadata_check import metadata_problems
from bayplan.validation.schema_check import schema_problems
from scheduler_core.config.built_in_behaviour import enabled_notes
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.profiles import queue_sort_of

_KINDS = {resource.definition.kind: resource for resource in RESOURCES}
_CONFIGURATION = "kubescheduler.config.k8s.io"


class Judgement:
    """Manifests, judged together.

    Args:
        manifests: All of them.
        allow_default_scheduler: Whether a profile may be named default-scheduler, as with ``bayplan run``.

    Attributes:
        findings: What was found.
        objects: How many objects were judged, those that are passed over left out.
    """

    def __init__(self, manifests: Sequence[Manifest], *, allow_default_scheduler: bool = False) -> None:
        self.findings: list[Finding] = []
        self.objects = 0
        self._allow_default_scheduler = allow_default_scheduler
        self._scheduler = offline_scheduler()
        self._schemas = {
            kind: definition_of(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for kind, resource in _KINDS.items()
        }
        ours = [each for each in manifests if self._is_ours(each)]
        self._configs = [_plain(each) for each in ours if _kind(each) == "PluginConfig" and _name(each)]
        self._names: dict[str, Manifest] = {}
        self._order: tuple[Manifest, tuple[str, str]] | None = None
        self._first: dict[tuple[str, ...], Manifest] = {}
        for each in ours:
            self._judge(each)

    # -- which are judged ---------------------------------------------------------------------------------------

    def _is_ours(self, manifest: Manifest) -> bool:
        body = manifest.body
        if not isinstance(body, Mapping) or not isinstance(body.get("kind"), str):
            self._tell(manifest, [Problem("", "is not a Kubernetes object; give it apiVersion, kind and metadata")])
            return False
        kind, version = body["kind"], body.get("apiVersion")
        group = str(version or "").partition("/")[0]
        if group == _CONFIGURATION:
            self.objects += 1
            self._tell(manifest, configuration_problems(body, self._scheduler))
            self._tell(manifest, configuration_notes(body), Severity.NOTE)
        elif group == GROUP and kind not in _KINDS:
            hint = did_you_mean(kind, _KINDS)
            self._tell(manifest, [Problem("kind", f"there is no such kind in {GROUP}{hint}; correct it")])
        elif (group == GROUP and version != API_VERSION) or (version is None and kind in _KINDS):
            self._tell(manifest, [Problem("apiVersion", f'must be "{API_VERSION}"')])
        elif group == GROUP:
            return True
        else:
            told = f"{kind} ({version or 'no apiVersion'}) is passed over: it is not Bayplan's"
            self._tell(manifest, [Problem("", told)], Severity.NOTE)
        return False

    def _judge(self, manifest: Manifest) -> None:
        self.objects += 1
        kind = _kind(manifest)
        body = {name: value for name, value in manifest.body.items() if name != "status"}
        problems = list(metadata_problems(body.get("metadata")))
        if _name(manifest):
            self._note_repetition(manifest)
            plain = _plain(manifest)
            if kind == "SchedulerProfile":
                problems += self._profile_problems(manifest, plain)
            elif kind == "PluginConfig":
                (judged,) = validate_plugin_configs([plain], self._scheduler.registry, {})
                problems += judged.problems
            else:
                problems += _model_problems(plain)
        told = {problem.path for problem in problems}
        rest = {name: value for name, value in body.items() if name != "metadata"}
        schema = {**self._schemas[kind], "required": ["spec"]}
        problems += [each for each in schema_problems({**rest, "metadata": {}}, schema, "") if each.path not in told]
        self._tell(manifest, problems)

    # -- profiles -----------------------------------------------------------------------------------------------

    def _profile_problems(self, manifest: Manifest, plain: Mapping[str, Any]) -> list[Problem]:
        state = desired_state(
            [plain], self._configs, self._scheduler.registry, allow_default_scheduler=self._allow_default_scheduler
        )
        (judged,) = state.profiles
        missing = set(_missing(plain, [config.meta.name for config in state.plugin_configs]))
        self._tell(manifest, missing, Severity.WARNING)
        problems = [problem for problem in judged.problems if problem not in missing]
        problems += self._name_problems(manifest, judged.scheduler_name)
        if judged.config is not None:
            notes = [judged.located(note) for note in enabled_notes(judged.config.plugins)]
            self._tell(manifest, notes, Severity.NOTE)
            try:
                instance = self._scheduler.build(judged.config)
            except ConfigError as error:
                located = [judged.located(problem) for problem in error.problems]
                problems += [problem for problem in located if problem not in problems]
            else:
                if not problems:
                    problems += self._order_problems(manifest, queue_sort_of(instance))
                instance.retire()
        return problems

    def _name_problems(self, manifest: Manifest, scheduler_name: str) -> Iterator[Problem]:
        other = self._names.setdefault(scheduler_name, manifest)
        if _name(other) != _name(manifest):
            yield Problem(
                "spec.schedulerName",
                f'"{scheduler_name}" is claimed by {_described(other)} ({_place(other)}) too, and the older of the two '
                "will hold it; choose another name",
            )

    def _order_problems(self, manifest: Manifest, order: tuple[str, str]) -> Iterator[Problem]:
        if self._order is None:
            self._order = manifest, order
        first, its_order = self._order
        if order != its_order:
            yield Problem(
                "spec.plugins.queueSort",
                f"must be that of {_described(first)} ({_place(first)}) with the same args: all profiles share one "
                "queue, and this one would wait until they agree",
            )

    # -- telling ------------------------------------------------------------------------------------------------

    def _note_repetition(self, manifest: Manifest) -> None:
        metadata = manifest.body["metadata"]
        key = (_kind(manifest), str(metadata.get("namespace") or ""), _name(manifest))
        other = self._first.setdefault(key, manifest)
        if other is not manifest:
            told = f"stands in {_place(other)} already, and the later one will replace it; remove one"
            self._tell(manifest, [Problem("metadata.name", told)], Severity.WARNING)

    def _tell(self, manifest: Manifest, problems: Iterable[Problem], severity: Severity = Severity.ERROR) -> None:
        for problem in problems:
            self.findings.append(
                Finding(
                    severity,
                    manifest.file,
                    problem.message,
                    manifest.line(problem.path),
                    manifest.number,
                    _described(manifest) if severity is not Severity.NOTE else "",
                    problem.path,
                )
            )


def _kind(manifest: Manifest) -> str:
    return str(manifest.body["kind"])


def _name(manifest: Manifest) -> str:
    """The object's name; empty where it has none that could be one."""
    metadata = manifest.body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def _described(manifest: Manifest) -> str:
    body = manifest.body
    if not isinstance(body, Mapping) or not isinstance(body.get("kind"), str):
        return ""
    return f"{body['kind']} {_name(manifest)}".rstrip()


def _place(manifest: Manifest) -> str:
    return f"{manifest.file}:{manifest.line()}"


def _plain(manifest: Manifest) -> dict[str, Any]:
    """What the operator judges of an object; the rest is the API server's business."""
    namespace = manifest.body["metadata"].get("namespace")
    metadata = {"name": _name(manifest), **({"namespace": namespace} if isinstance(namespace, str) else {})}
    spec = {"spec": manifest.body["spec"]} if "spec" in manifest.body else {}
    return {"apiVersion": API_VERSION, "kind": _kind(manifest), "metadata": metadata, **spec}


def _model_problems(plain: Mapping[str, Any]) -> tuple[Problem, ...]:
    try:
        PodGroup.from_object(plain)
    except ConfigError as error:
        return error.problems
    return ()


def _missing(plain: Mapping[str, Any], known: Sequence[str]) -> Iterator[Problem]:
    """References to PluginConfigs that no file holds, in the very words of who judges them."""
    spec = plain.get("spec")
    references = spec.get("pluginConfigRefs") if isinstance(spec, Mapping) else None
    for index, reference in enumerate(references if isinstance(references, list) else ()):
        name = reference.get("name") if isinstance(reference, Mapping) else None
        if isinstance(name, str) and name not in known:
            yield Problem(f"spec.pluginConfigRefs[{index}].name", missing_plugin_config(name, known))
