"""Passes the host's package index settings of pip, uv and proxies to the build, as build secrets.

Secrets, and neither arguments nor files of the context, because an index's URL may contain a password and arguments
stay in the image's history. The build installs from the index itself, so `docker build .` works without any earlier
step, and the hashes of the lock are checked where the packages are unpacked.
"""

import configparser
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

_PASSED_ON = (
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_DEFAULT_TIMEOUT",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_HTTP_TIMEOUT",
    *(name for upper in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY") for name in (upper, upper.lower())),
)
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SEEN_IN_BUILD = "/run/secrets/ca"


def secret_flags(directory: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Write the secrets and name them for the build.

    Args:
        directory: A directory that only the caller reads, and removes after the build.

    Returns:
        Flags for the engine's build; empty where PyPI is reached as it is.
    """
    settings, certificates = host_settings(environment)
    flags = []
    if certificates is not None:
        flags.append(f"--secret=id=ca,src={certificates}")
        settings |= {"SSL_CERT_FILE": _SEEN_IN_BUILD, "PIP_CERT": _SEEN_IN_BUILD}
    if settings:
        file = directory / "index"
        file.touch(mode=0o600)
        file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(settings.items())))
        flags.append(f"--secret=id=index,src={file}")
    return flags


def host_settings(
    environment: Mapping[str, str], files: Sequence[Path] | None = None
) -> tuple[dict[str, str], Path | None]:
    """Read what is set for pip and uv.

    Args:
        environment: The host's variables; they win over files.
        files: Configuration files of pip, the later ones win; those that pip reads unless given.

    Returns:
        Variables for the build, and the certificates to trust, if the host names some.
    """
    configured = _pip_configuration(_pip_files(environment) if files is None else files)
    settings = {name: environment[name] for name in _PASSED_ON if environment.get(name)}
    for option, name in (("index-url", "PIP_INDEX_URL"), ("extra-index-url", "PIP_EXTRA_INDEX_URL")):
        if option in configured:
            settings.setdefault(name, " ".join(configured[option].split()))
    if "trusted-host" in configured:
        settings.setdefault("PIP_TRUSTED_HOST", configured["trusted-host"])
    index = settings.get("UV_DEFAULT_INDEX") or settings.get("UV_INDEX_URL") or settings.get("PIP_INDEX_URL")
    if index:
        # A user that sets one of the two expects it to apply to both.
        settings.setdefault("PIP_INDEX_URL", index)
        settings.setdefault("UV_DEFAULT_INDEX", index)
    if "PIP_EXTRA_INDEX_URL" in settings and "UV_INDEX" not in settings:
        settings.setdefault("UV_EXTRA_INDEX_URL", settings["PIP_EXTRA_INDEX_URL"])
    named = [environment.get(name, "") for name in _CERTIFICATES] + [configured.get("cert", "")]
    certificates = [Path(name) for name in named if name and Path(name).is_file()]
    return settings, certificates[0] if certificates else None


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME", "/nonexistent"))
    configuration = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", configuration / "pip" / "pip.conf"]
    return [*files, Path(environment["PIP_CONFIG_FILE"])] if environment.get("PIP_CONFIG_FILE") else files


def _pip_configuration(files: Sequence[Path]) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    parser.read(files)
    return {
        option.replace("_", "-"): value
        for section in ("global", "install")
        if parser.has_section(section)
        for option, value in parser.items(section)
    }
