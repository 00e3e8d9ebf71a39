"""``bayplan run``: runs the operator.

Flags have no defaults of their own, so that a setting in the file applies if its flag is not given. Flags may be
written as for kube-scheduler v1.37.1 and pflag: a name may have ``_`` in place of ``-``, a boolean flag may have a
value after ``=``, a flag that is repeated has its last value, and the values of ``--feature-gates`` are merged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
from pydantic import BeforeValidator

from bayplan.app import run_operator
from bayplan.configuration.configuration_file import RunConfiguration, configured_settings, read_configuration
from bayplan.process.log_output import set_up_logging
from bayplan.settings.feature_gates import gates_summary, parse_feature_gates
from bayplan.settings.operator_settings import LeaderElectionSettings, Settings, load_settings
from scheduler_core.errors import ConfigError, Problem

_ELECTION = "set leaderElection in the file of --settings, or in that of --config"
_SERVING = "use --serve-address HOST:PORT"
_ONE_CERTIFICATE = "remove it; one certificate is served, with the defaults of OpenSSL"
_HTTP = "remove it; HTTP/1.1 is served"
_REVIEWS = "use --authorize-requests, which reviews tokens with the operator's own credentials"
_ALWAYS_REVIEWED = "remove it; with --authorize-requests tokens are always reviewed, and health checks need none"
_TOKENS = "remove it; requests authenticate with bearer tokens"
_SEMANTICS = "remove it; the semantics are those of Kubernetes v1.37.1"
_LOGS = "remove it; there is one log level, --log-level or -v, and log lines are unbuffered"
_METRICS = "remove it; all metrics are served"

REMEDIES: Mapping[str, str] = {
    "--master": "set the server in the file of --kubeconfig",
    "--leader-elect-lease-duration": _ELECTION,
    "--leader-elect-renew-deadline": _ELECTION,
    "--leader-elect-retry-period": _ELECTION,
    "--leader-elect-resource-name": _ELECTION,
    "--leader-elect-resource-namespace": _ELECTION,
    "--leader-elect-resource-lock": "remove it; the lock is always a Lease",
    "--bind-address": _SERVING,
    "--secure-port": _SERVING,
    "--cert-dir": _ONE_CERTIFICATE,
    "--tls-sni-cert-key": _ONE_CERTIFICATE,
    "--tls-cipher-suites": _ONE_CERTIFICATE,
    "--tls-curve-preferences": _ONE_CERTIFICATE,
    "--http2-max-streams-per-connection": _HTTP,
    "--disable-http2-serving": _HTTP,
    "--permit-address-sharing": _HTTP,
    "--permit-port-sharing": _HTTP,
    "--authentication-kubeconfig": _REVIEWS,
    "--authorization-kubeconfig": _REVIEWS,
    "--authentication-skip-lookup": _ALWAYS_REVIEWED,
    "--authentication-tolerate-lookup-failure": _ALWAYS_REVIEWED,
    "--authentication-token-webhook-cache-ttl": _ALWAYS_REVIEWED,
    "--authorization-webhook-cache-authorized-ttl": _ALWAYS_REVIEWED,
    "--authorization-webhook-cache-unauthorized-ttl": _ALWAYS_REVIEWED,
    "--authorization-always-allow-paths": _ALWAYS_REVIEWED,
    "--client-ca-file": _TOKENS,
    "--requestheader-allowed-names": _TOKENS,
    "--requestheader-client-ca-file": _TOKENS,
    "--requestheader-extra-headers-prefix": _TOKENS,
    "--requestheader-group-headers": _TOKENS,
    "--requestheader-uid-headers": _TOKENS,
    "--requestheader-username-headers": _TOKENS,
    "--kube-api-qps": "use --client-qps, or clientConnection.qps in the file of --config",
    "--kube-api-burst": "use --client-burst, or clientConnection.burst in the file of --config",
    "--kube-api-content-type": "remove it; requests to the API server are JSON",
    "--profiling": "use --enable-profiling",
    "--contention-profiling": "remove it; the scheduler has one thread, without locks",
    "--emulated-version": _SEMANTICS,
    "--min-compatibility-version": _SEMANTICS,
    "--logging-format": "use --log-format",
    "--vmodule": _LOGS,
    "--log-flush-frequency": _LOGS,
    "--log-json-info-buffer-size": _LOGS,
    "--log-json-split-stream": _LOGS,
    "--log-text-info-buffer-size": _LOGS,
    "--log-text-split-stream": _LOGS,
    "--allow-metric-labels": _METRICS,
    "--allow-metric-labels-manifest": _METRICS,
    "--disabled-metrics": _METRICS,
    "--show-hidden-metrics-for-version": _METRICS,
    "--version": "run bayplan version",
}
"""What to do in place of each flag of kube-scheduler that ``bayplan run`` does not have."""
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


class CommandWithGoFlags(click.Command):
    """Command that reads flags as kube-scheduler does, and names what replaces a flag that only kube-scheduler has."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; ``--flag=true`` is ``--flag``, and ``--flag=false`` is ``--no-flag``."""
        switches = {
            parameter.opts[0]: parameter.secondary_opts[0] for parameter in self.params if parameter.secondary_opts
        }
        plain = [_plain_flag(each, switches) for each in args]
        try:
            return super().parse_args(ctx, list(plain))
        except click.NoSuchOption as error:
            problems = list(dict.fromkeys(_foreign_flags(plain)))
            if not problems:
                raise
            raise click.UsageError("\n".join(problems), ctx) from error
        except click.UsageError as error:
            stray = next((each for each in plain if each in _TRUE + _FALSE), None)
            if stray is None or "unexpected extra argument" not in error.message:
                raise
            text = f'{error.message}; write the value of a boolean flag after "=", as in --leader-elect={stray}'
            raise click.UsageError(text, ctx) from error


def _foreign_flags(arguments: Iterable[str]) -> Iterable[str]:
    for each in arguments:
        name = each.partition("=")[0]
        if name in REMEDIES:
            yield f"{name} is a flag of kube-scheduler that bayplan run does not have; {REMEDIES[name]}"


def _plain_flag(argument: str, switches: Mapping[str, str]) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    name = name.replace("_", "-")
    if not equals or name not in switches:
        return f"{name}{equals}{value}"
    if value in _TRUE or value in _FALSE:
        return name if value in _TRUE else switches[name]
    raise click.BadParameter(f'invalid value "{value}"; set true or false', param_hint=name)


log = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)


_METAVARS = {
    "kubeconfig": "FILE",
    "percentage_of_nodes_to_score": "PERCENT",
    "serve_address": "HOST:PORT",
    "local_address": "HOST:PORT",
    "advertise_address": "ADDRESS",
    "tls_cert_file": "FILE",
    "tls_private_key_file": "FILE",
    "extender_files_directory": "DIRECTORY",
    "profiles": "SELECTOR",
    "record": "DIRECTORY",
}
_NOT_GENERATED = ("leader_election", "allowed_extender_hosts", "tracing", "webhook", "feature_gates", "verbosity")
"""Fields whose flag has a syntax of its own, or that have none."""


def _settings_flags(command: Command) -> Command:
    """Add a flag for each field of the settings, with the field's description and default as its help."""
    for name, info in reversed(Settings.model_fields.items()):
        if name in _NOT_GENERATED:
            continue
        flag, kind = name.replace("_", "-"), info.annotation
        more: dict[str, Any] = {"metavar": _METAVARS.get(name)}
        if get_origin(kind) is Literal:
            more["type"] = click.Choice(get_args(kind))
        elif kind is bool:
            flag = f"{flag}/--no-{flag}"
        elif any(isinstance(each, BeforeValidator) for each in info.metadata):
            more = {"type": str, "metavar": "SECONDS"}  # The model parses it: it may be a duration.
        else:
            more["type"] = next((each for each in get_args(kind) if each is not NoneType), kind)
        default = "" if kind is bool or info.default in (None, "") else f"  [default: {info.default}]"
        command = click.option(f"--{flag}", default=None, help=f"{info.description}{default}", **more)(command)
    return command


@click.command(cls=CommandWithGoFlags, short_help="Run the operator: schedule pods by profiles from custom resources.")
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    default=None,
    help="YAML file of the settings below, with names in camelCase; flags take precedence.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    default=None,
    help="KubeSchedulerConfiguration v1 to use instead of custom resources: its profiles, leader election, client "
    "connection and percentage. A flag that contradicts it is rejected.",
)
@click.option(
    "--write-config-to",
    type=click.Path(path_type=Path, allow_dash=True),
    default=None,
    help="Write the configuration of --config with its defaults to this file and exit; - is standard output.",
)
@_settings_flags
@click.option(
    "--allowed-extender-hosts",
    callback=lambda _, __, text: None if text is None else [host for host in text.split(",") if host],
    metavar="HOST,...",
    default=None,
    help=str(Settings.model_fields["allowed_extender_hosts"].description),
)
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help=f"{LeaderElectionSettings.model_fields['leader_elect'].description}  [leaderElection.leaderElect]",
)
@click.option(
    "--feature-gates",
    multiple=True,
    callback=lambda _, __, texts: parse_feature_gates(",".join(texts)) if texts else None,
    metavar="NAME=BOOL,...",
    help=f"Enable or disable features; a gate here takes precedence over the settings file. {gates_summary()}. "
    "See `bayplan features`.",
)
@click.option(
    "-v",
    "--v",
    "--verbosity",
    "verbosity",
    callback=lambda _, __, text: None if text is None else _level(text),
    metavar="LEVEL",
    help=f"{Settings.model_fields['verbosity'].description}  [default: 0]",
)
def run(
    settings_file: Path | None,
    config_file: Path | None,
    write_config_to: Path | None,
    leader_elect: bool | None,
    **flags: Any,
) -> None:
    """Run the operator until SIGTERM or SIGINT.

    The operator reads SchedulerProfiles and PluginConfigs, schedules the pods whose spec.schedulerName a profile
    serves, and reports the results in events, conditions and statuses. With --config it serves the profiles of that
    file instead, as kube-scheduler does.
    """
    settings = load_settings(flags, settings_file, leader_elect=leader_elect)
    configuration = None
    if config_file is not None:
        configuration = read_configuration(config_file)
        settings = configured_settings(configuration, settings, {**flags, "leader_elect": leader_elect})
    if write_config_to is not None:
        _write_configuration(configuration, write_config_to)
        return
    set_up_logging(settings.log_level, settings.log_format, settings.verbosity)
    with asyncio.Runner() as runner:
        sys.exit(runner.run(run_operator(settings, _end_by_force_after, configuration)))


def _level(text: str) -> int:
    """Parse a level of ``-v``; Go accepts ``-v=3`` as well as ``-v 3``."""
    number = text.removeprefix("=")
    if not number.isdigit():
        raise click.BadParameter(f'invalid level "{number}"; set 0 to 10')
    return int(number)


def _write_configuration(configuration: RunConfiguration | None, target: Path) -> None:
    if configuration is None:
        raise ConfigError([Problem("--write-config-to", "requires --config")])
    # Imported here because only this flag needs them, and every module costs start-up time.
    from bayplan.configuration.completed_configuration import completed_configuration  # noqa: PLC0415
    from bayplan.simulation.memory_cluster import offline_scheduler  # noqa: PLC0415

    text = completed_configuration(configuration, offline_scheduler())
    if str(target) == "-":
        click.echo(text, nl=False)
        return
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            [Problem("--write-config-to", f"cannot write to {target} ({error}); specify another file")]
        ) from error


def _end_by_force_after(seconds: float) -> None:
    """Exit the process from a thread after a timeout, because a plugin may block the loop."""
    watchdog = threading.Timer(seconds, _end_by_force)
    watchdog.daemon = True
    watchdog.start()


def _end_by_force() -> None:
    log.critical("The process did not stop in time and exits now; the next process resolves binds in progress.")
    logging.shutdown()
    os._exit(1)
