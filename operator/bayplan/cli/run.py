"""``bayplan run``: the operator.

Owns its flags, the event loop and the exit code. It must not hold a default: those are the settings' own, so that a
settings file can tell what no flag says.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from bayplan.app import run_operator
from bayplan.completed_configuration import completed_configuration
from bayplan.feature_gates import gates_summary, parse_feature_gates
from bayplan.kube_configuration import RunConfiguration, configured_settings, read_configuration
from bayplan.log_output import set_up_logging
from bayplan.settings import LeaderElectionSettings, Settings, load_settings
from scheduler_core.errors import ConfigError, Problem

log = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)


def _flag(name: str, kind: Any, **more: Any) -> Callable[[Command], Command]:
    """A flag that sets a field of the settings, with the field's own description and default as its help."""
    info = Settings.model_fields[name.replace("-", "_")]
    default = "" if info.default in (None, "") or kind is bool else f"  [default: {info.default}]"
    declaration = f"--{name}/--no-{name}" if kind is bool else f"--{name}"
    kinds = {} if kind is bool else {"type": kind}
    return click.option(declaration, default=None, help=f"{info.description}{default}", **kinds, **more)


@click.command(short_help="Run the operator: scheduler profiles from custom resources, pods bound by them.")
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(path_type=Path),
    default=None,
    help="YAML file of the settings below, their names in camelCase; flags win over it.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    default=None,
    help="KubeSchedulerConfiguration v1 to run as it is, without custom resources: its profiles, leader election, "
    "client connection and percentage. A flag that says something else is refused.",
)
@click.option(
    "--write-config-to",
    type=click.Path(path_type=Path, allow_dash=True),
    default=None,
    help="Write the file of --config there, completed with its defaults, and exit; - is standard output.",
)
@_flag("kubeconfig", str, metavar="FILE")
@_flag("context", str)
@_flag("namespace", str)
@_flag("seed", int)
@_flag("percentage-of-nodes-to-score", int, metavar="PERCENT")
@_flag("pod-initial-backoff-seconds", int)
@_flag("pod-max-backoff-seconds", int)
@_flag("pod-max-in-unschedulable-pods-duration", str, metavar="SECONDS")
@_flag("gang-reservation-delay", str, metavar="SECONDS")
@_flag("client-qps", float)
@_flag("client-burst", int)
@_flag("bind-concurrency", int)
@_flag("serve-address", str, metavar="HOST:PORT")
@_flag("advertise-address", str, metavar="ADDRESS")
@_flag("secure-serving", bool)
@_flag("tls-cert-file", str, metavar="FILE")
@_flag("tls-private-key-file", str, metavar="FILE")
@_flag("tls-min-version", click.Choice(["VersionTLS12", "VersionTLS13"]))
@_flag("authorize-requests", bool)
@_flag("allow-default-scheduler", bool)
@_flag("extender-files-directory", str, metavar="DIRECTORY")
@click.option(
    "--allowed-extender-hosts",
    callback=lambda _, __, text: None if text is None else [host for host in text.split(",") if host],
    metavar="HOST,...",
    default=None,
    help=str(Settings.model_fields["allowed_extender_hosts"].description),
)
@_flag("profiles", str, metavar="SELECTOR")
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help=f"{LeaderElectionSettings.model_fields['leader_elect'].description}  [leaderElection.leaderElect]",
)
@_flag("delay-cache-until-active", bool)
@_flag("plugin-time-budget", str, metavar="SECONDS")
@_flag("liveness-limit", str, metavar="SECONDS")
@_flag("enable-profiling", bool)
@click.option(
    "--feature-gates",
    callback=lambda _, __, text: None if text is None else parse_feature_gates(text),
    metavar="NAME=BOOL,...",
    default=None,
    help=f"Turn features on or off; a gate named here wins over the settings file. {gates_summary()}. "
    "See `bayplan features`.",
)
@_flag("log-level", click.Choice(["debug", "info", "warning", "error"]))
@click.option(
    "-v",
    "--v",
    "--verbosity",
    "verbosity",
    callback=lambda _, __, text: None if text is None else _level(text),
    metavar="LEVEL",
    help=f"{Settings.model_fields['verbosity'].description}  [default: 0]",
)
@_flag("log-format", click.Choice(["text", "json"]))
@_flag("graceful-stop-seconds", str, metavar="SECONDS")
def run(
    settings_file: Path | None,
    config_file: Path | None,
    write_config_to: Path | None,
    leader_elect: bool | None,
    **flags: Any,
) -> None:
    """Run the operator until SIGTERM or SIGINT.

    It reads SchedulerProfiles and PluginConfigs, schedules the pods whose spec.schedulerName a profile serves, and
    writes what happened into events, conditions and statuses. With --config it serves the profiles of that file
    instead, as kube-scheduler does.
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
    """A level of ``-v``; Go's flags may be written ``-v=3`` as well as ``-v 3``."""
    number = text.removeprefix("=")
    if not number.isdigit():
        raise click.BadParameter(f"{text} is no level; give 0 to 10")
    return int(number)


def _write_configuration(configuration: RunConfiguration | None, target: Path) -> None:
    if configuration is None:
        raise ConfigError([Problem("--write-config-to", "completes the file of --config; give that too")])
    text = completed_configuration(configuration)
    if str(target) == "-":
        click.echo(text, nl=False)
        return
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            [Problem("--write-config-to", f"{target} cannot be written ({error}); choose another")]
        ) from error


def _end_by_force_after(seconds: float) -> None:
    """Set the last resort, in a thread: a plugin may hold the loop, and the kubelet's patience is not much longer."""
    watchdog = threading.Timer(seconds, _end_by_force)
    watchdog.daemon = True
    watchdog.start()


def _end_by_force() -> None:
    log.critical("The process did not end in time and ends now; binds in flight are settled by the next one.")
    logging.shutdown()
    os._exit(1)
