"""Validates manifests as the API server and the operator together do.

It has no rules of its own: the schema is that of the CustomResourceDefinitions, the other rules are those of the
models, the plugins and ``desired_state``, so that it accepts exactly the files that a cluster would run. Each profile
is validated alone: a file does not contain which of two profiles that claim a name is older, so both get the
problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bayplan.configuration.configuration_file import configuration_notes, configuration_problems
from bayplan.profiles.desired_profiles import desired_state, missing_plugin_config
from bayplan.profiles.plugin_config_validation import PluginConfigValidation
from bayplan.resources.crd_generation import RESOURCES, definition_of
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import API_VERSION, GROUP
from bayplan.simulation.memory_cluster import offline_scheduler
from bayplan.validation.findings import Finding, Severity
from bayplan.validation.manifest_files import Manifest
from bayplan.validation.metadata_check import metadata_problems
from bayplan.validation.schema_check import schema_problems
from scheduler_core.config.plugins_without_effect import enabled_notes
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.profile_swap import queue_sort_of

_KINDS = {resource.definition.kind: resource for resource in RESOURCES}
_CONFIGURATION = "kubescheduler.config.k8s.io"


class ManifestValidation:
    """Validation of manifests together.

    Args:
        manifests: All manifests.
        allow_default_scheduler: Whether a profile may be named default-scheduler, as with ``bayplan run``.

    Attributes:
        findings: The findings.
        objects: Number of validated objects, without ignored ones.
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
        self._validation = PluginConfigValidation(self._scheduler.registry)
        self._names: dict[str, Manifest] = {}
        self._order: tuple[Manifest, tuple[str, str]] | None = None
        self._first: dict[tuple[str, ...], Manifest] = {}
        for each in ours:
            self._validate(each)

    # -- selection ----------------------------------------------------------------------------------------------

    def _is_ours(self, manifest: Manifest) -> bool:
        body = manifest.body
        if not isinstance(body, Mapping) or not isinstance(body.get("kind"), str):
            self._report(manifest, [Problem("", "is not a Kubernetes object; give it apiVersion, kind and metadata")])
            return False
        kind, version = body["kind"], body.get("apiVersion")
        group = str(version or "").partition("/")[0]
        if group == _CONFIGURATION:
            self.objects += 1
            self._report(manifest, configuration_problems(body, self._scheduler))
            self._report(manifest, configuration_notes(body), Severity.NOTE)
        elif group == GROUP and kind not in _KINDS:
            hint = did_you_mean(kind, _KINDS)
            self._report(manifest, [Problem("kind", f"unknown kind in {GROUP}{hint}; correct it")])
        elif (group == GROUP and version != API_VERSION) or (version is None and kind in _KINDS):
            self._report(manifest, [Problem("apiVersion", f'must be "{API_VERSION}"')])
        elif group == GROUP:
            return True
        else:
            message = f"{kind} ({version or 'no apiVersion'}) is ignored: it is not a resource of Bayplan"
            self._report(manifest, [Problem("", message)], Severity.NOTE)
        return False

    def _validate(self, manifest: Manifest) -> None:
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
                (validated,) = PluginConfigValidation(self._scheduler.registry).validate([plain], {})
                problems += validated.problems
            else:
                problems += _model_problems(plain)
        reported = {problem.path for problem in problems}
        rest = {name: value for name, value in body.items() if name != "metadata"}
        schema = {**self._schemas[kind], "required": ["spec"]}
        found = schema_problems({**rest, "metadata": {}}, schema, "")
        problems += [each for each in found if each.path not in reported]
        self._report(manifest, problems)

    # -- profiles -----------------------------------------------------------------------------------------------

    def _profile_problems(self, manifest: Manifest, plain: Mapping[str, Any]) -> list[Problem]:
        state = desired_state(
            [plain], self._configs, self._validation, allow_default_scheduler=self._allow_default_scheduler
        )
        (validated,) = state.profiles
        missing = set(_missing(plain, [config.meta.name for config in state.plugin_configs]))
        self._report(manifest, missing, Severity.WARNING)
        problems = [problem for problem in validated.problems if problem not in missing]
        if validated.shadow is None:
            problems += self._name_problems(manifest, validated.scheduler_name)
        if validated.config is not None:
            notes = [validated.located(note) for note in enabled_notes(validated.config.plugins)]
            self._report(manifest, notes, Severity.NOTE)
            try:
                instance = self._scheduler.build(validated.config, validated.args)
            except ConfigError as error:
                problems += validated.build_problems(error)
            else:
                if not problems and validated.shadow is None:
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

    # -- reporting ----------------------------------------------------------------------------------------------

    def _note_repetition(self, manifest: Manifest) -> None:
        metadata = manifest.body["metadata"]
        key = (_kind(manifest), str(metadata.get("namespace") or ""), _name(manifest))
        other = self._first.setdefault(key, manifest)
        if other is not manifest:
            message = f"is defined in {_place(other)} already, and the later one will replace it; remove one"
            self._report(manifest, [Problem("metadata.name", message)], Severity.WARNING)

    def _report(self, manifest: Manifest, problems: Iterable[Problem], severity: Severity = Severity.ERROR) -> None:
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
    """Return the object's name; empty if it has no valid one."""
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
    """Return the parts of an object that the operator validates; the API server validates the rest."""
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
    """Yield references to PluginConfigs that no file contains, with the message of ``desired_state``."""
    spec = plain.get("spec")
    references = spec.get("pluginConfigRefs") if isinstance(spec, Mapping) else None
    for index, reference in enumerate(references if isinstance(references, list) else ()):
        name = reference.get("name") if isinstance(reference, Mapping) else None
        if isinstance(name, str) and name not in known:
            yield Problem(f"spec.pluginConfigRefs[{index}].name", missing_plugin_config(name, known))
