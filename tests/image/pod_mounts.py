"""The directories that a kubelet would mount into the operator's container, and the engine's flags to mount them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class PodMounts:
    """Directories to mount, world-readable as a kubelet's are for the pod's user.

    Args:
        directory: Parent of the directories.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._config_maps: dict[str, Path] = {}
        self._account: Path | None = None
        self._projected: Path | None = None

    def add_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Write the files of a ConfigMap."""
        self._config_maps[name] = self._files(f"config-{name}", data)

    def add_service_account(self, token: str, authority: str, namespace: str) -> None:
        """Write the files of a pod's service account: token, certificate authority and namespace."""
        self._account = self._files("account", {"token": token, "ca.crt": authority, "namespace": namespace})

    def add_projected_token(self, path: str, token: str) -> None:
        """Write the file of a volume that projects a token for an audience."""
        self._projected = self._files("projected", {path: token})

    def flags(self, pod: Mapping[str, Any]) -> list[str]:
        """Return the engine's flags for the mounts of a pod's first container.

        Args:
            pod: Spec of a pod.

        Returns:
            The flags; an optional volume without files is left out.
        """
        volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
        flags = []
        for mount in pod["containers"][0].get("volumeMounts", ()):
            volume, path = volumes[mount["name"]], mount["mountPath"]
            if "emptyDir" in volume:
                size = volume["emptyDir"].get("sizeLimit", "64Mi").removesuffix("i").lower()
                flags.append(f"--tmpfs={path}:rw,mode=1777,size={size}")
            elif "configMap" in volume and volume["configMap"]["name"] in self._config_maps:
                flags.append(f"--volume={self._config_maps[volume['configMap']['name']]}:{path}:ro")
            elif "projected" in volume and self._projected is not None:
                flags.append(f"--volume={self._projected}:{path}:ro")
            else:
                assert any(source.get("optional") for source in volume.values() if isinstance(source, dict)), volume
        if pod.get("automountServiceAccountToken") and self._account is not None:
            flags.append(f"--volume={self._account}:{_ACCOUNT}:ro")
        return flags

    def _files(self, name: str, data: Mapping[str, str]) -> Path:
        directory = self._directory / name
        directory.mkdir(mode=0o755)
        for file, text in data.items():
            (directory / file).write_text(text)
        return directory
