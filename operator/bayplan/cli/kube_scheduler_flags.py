"""Flags as manifests of kube-scheduler write them: their syntax, and what replaces the flags that Bayplan lacks.

Follows kube-scheduler v1.37.1 and pflag: a name may have ``_`` in place of ``-``, a boolean flag may have a value after
``=``, a flag that is repeated has its last value, and the values of ``--feature-gates`` are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

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
