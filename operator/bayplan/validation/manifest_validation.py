"""Validates manifests as the API server and the operator together do.

It has no rules of its own: those of the API server are in ``api_validation``, the others are those of the models, the
plugins and ``desired_state``, so that it accepts exactly the files that a cluster would run. Each profile
is validated alone: a file does not contain which of two profiles that claim a name is older, so both get the
problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bayplan.api_validation.object_validation import (
    CONFIG_MAP,
    CONFIGURATION,
    ObjectValidation,
    configurations_in,
    version_problem,
)
from bayplan.configuration.configuration_file import configuration_notes, configuration_problems
from bayplan.extenders.transport import extender_host
from bayplan.profiles.desired_profiles import desired_state, missing_plugin_config
from bayplan.profiles.plugin_config_validation import PluginConfigValidation
from bayplan.resources.crd_generation import RESOURCES
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import API_VERSION
from bayplan.simulation.cluster_files import READ_KINDS
from bayplan.simulation.memory_cluster import offline_scheduler
from bayplan.validation.manifest_files import Finding, Manifest, Severity
from scheduler_core.config.plugin_args import API_VERSION as CONFIGURATION_API
from scheduler_core.config.plugin_set_types import enabled_notes
from scheduler_core.config.validation import field_path
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.framework_instance import queue_sort_of

_KINDS = {resource.definition.kind: resource for resource in RESOURCES}


class ManifestValidation:
    """Validation of manifests together.

    Args:
        allow_default_scheduler: Whether a profile may be named default-scheduler, as with ``bayplan run``.

    Attributes:
        objects: Number of validated objects, without ignored ones.
    """

    def __init__(self, manifests: Sequence[Manifest], *, allow_default_scheduler: bool = False) -> None:
        self.findings: list[Finding] = []
        self.objects = 0
        self._allow_default_scheduler = allow_default_scheduler
        self._scheduler = offline_scheduler()
        self._objects = ObjectValidation()
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
        kind, version = body["kind"], str(body.get("apiVersion") or "")
        if version == API_VERSION and kind in _KINDS:
            return True
        known = [each for each, name in READ_KINDS if name == kind]
        if (version, kind) == CONFIG_MAP:
            self._validate_config_map(manifest)
        elif version == CONFIGURATION_API and kind == CONFIGURATION:
            self._validate_configuration(manifest, body)
        elif version in known:
            self.objects += 1
            self._report(manifest, self._objects.problems(body))
        else:
            problem = version_problem(version, kind, known)
            message = f"{kind} ({version}) is ignored: it is not validated here"
            self._report(
                manifest,
                [problem or Problem("", message)],
                Severity.NOTE if problem is None else Severity.ERROR,
            )
        return False

    def _validate_config_map(self, manifest: Manifest) -> None:
        """Validate a ConfigMap, and the kube-scheduler configurations that it holds."""
        found = configurations_in(manifest.body)
        for name, document in found:
            self._validate_configuration(manifest, document, field_path("data", (name,)))
        if not found:
            message = "ConfigMap (v1) is ignored: it holds no KubeSchedulerConfiguration"
            self._report(manifest, [Problem("", message)], Severity.NOTE)

    def _validate_configuration(self, manifest: Manifest, document: Any, prefix: str = "") -> None:
        self.objects += 1
        if not isinstance(document, Mapping):
            self._report(manifest, [Problem(prefix, "is not a KubeSchedulerConfiguration in YAML; correct the text")])
            return
        version = document.get("apiVersion")
        if version != CONFIGURATION_API:
            message = f'must be "{CONFIGURATION_API}", not "{version}"; convert the configuration to it'
            self._report(manifest, [Problem(_joined(prefix, "apiVersion"), message)])
            document = {**document, "apiVersion": CONFIGURATION_API}
        found = [*configuration_problems(document, self._scheduler), *_url_problems(document, "")]
        self._report(manifest, [Problem(_joined(prefix, each.path), each.message) for each in found])
        notes = configuration_notes(document)
        self._report(manifest, [Problem(_joined(prefix, each.path), each.message) for each in notes], Severity.NOTE)

    def _validate(self, manifest: Manifest) -> None:
        self.objects += 1
        kind = _kind(manifest)
        problems: list[Problem] = []
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
        problems += [each for each in self._objects.problems(manifest.body) if each.path not in reported]
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
        problems += _url_problems(plain.get("spec"), "spec")
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


def _joined(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


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


def _url_problems(document: Any, prefix: str) -> Iterator[Problem]:
    """Yield the problems of the URLs of extenders, which are otherwise found only when their clients are made."""
    extenders = document.get("extenders") if isinstance(document, Mapping) else None
    for index, extender in enumerate(extenders if isinstance(extenders, list) else ()):
        url = extender.get("urlPrefix") if isinstance(extender, Mapping) else None
        if not isinstance(url, str):
            continue
        try:
            extender_host(url)
        except ConfigError as error:
            yield from (
                Problem(_joined(prefix, f"extenders[{index}].{each.path}"), each.message) for each in error.problems
            )


def _missing(plain: Mapping[str, Any], known: Sequence[str]) -> Iterator[Problem]:
    """Yield references to PluginConfigs that no file contains, with the message of ``desired_state``."""
    spec = plain.get("spec")
    references = spec.get("pluginConfigRefs") if isinstance(spec, Mapping) else None
    for index, reference in enumerate(references if isinstance(references, list) else ()):
        name = reference.get("name") if isinstance(reference, Mapping) else None
        if isinstance(name, str) and name not in known:
            yield Problem(f"spec.pluginConfigRefs[{index}].name", missing_plugin_config(name, known))
