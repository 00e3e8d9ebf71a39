"""Family ``images``: container images on nodes."""

from __future__ import annotations

from tests.parity.oracle.generation.clusters import cluster, fill, profile, target
from tests.parity.oracle.generation.requests import weights
from tests.parity.oracle.generation.world import ARCH, World


def fam_images(w: World) -> None:
    """Generate a case of the family ``images``."""
    cluster(w, 3, 24)
    r = w.r
    repo = ["app", "registry.example.com/team/app", "web", "docker.io/library/db", "registry.example.com:5000/ml/train"]
    refs = []
    for base in repo:
        for tag in w.some(["v1", "v2", "latest", "sha"], 1, 3):
            if tag == "sha":
                digest = f"{r.getrandbits(256):064x}"
                refs.append(([f"{base}@sha256:{digest}"], r.choice([5, 80, 300, 700]) * 1_000_000 + r.randrange(1000)))
            else:
                names = [f"{base}:{tag}"]
                if w.p(0.5):
                    names.append(f"{base}@sha256:{r.getrandbits(256):064x}")
                refs.append(
                    (names, r.choice([1, 20, 22, 24, 50, 120, 400, 900, 1500, 5000]) * 1_048_576 + r.randrange(1 << 20))
                )
    share = w.pick([0.05, 0.3, 0.6, 0.95])
    for n in w.nodes:
        imgs = []
        for names, size in refs:
            if w.p(share):
                # The size is equal on all nodes, because otherwise the score depends on the order of nodes.
                imgs.append({"names": names, "sizeBytes": size})
        n["status"]["images"] = imgs
    fill(w, 0, 15, level=0.5)
    target(w, small=w.p(0.7))
    spec = w.pod["spec"]

    def image() -> str:
        name: str = w.pick(w.pick(refs)[0]) if w.p(0.85) else w.pick(["none:1", "app", "web"])
        return name[: -len(":latest")] if name.endswith(":latest") and w.p(0.5) else name

    spec["containers"][0]["image"] = image()
    for i in range(w.pick([0, 0, 1, 2, 4])):
        spec["containers"].append({"name": f"x{i}", "image": image()})
    if w.p(0.3):
        spec["initContainers"] = [
            {"name": f"i{i}", "image": image(), **({"restartPolicy": "Always"} if w.p(0.3) else {})}
            for i in range(w.r.randint(1, 2))
        ]
    if w.p(0.12):
        spec["volumes"] = [{"name": "artifact", "image": {"reference": image(), "pullPolicy": "IfNotPresent"}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "artifact", "mountPath": "/artifact"}]
    if w.p(0.35):
        archs = w.some(["amd64", "arm64", "riscv64"], 1, 2)
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": ARCH, "operator": "In", "values": archs}]}]
                }
            }
        }
    if w.p(0.2):
        profile(w, plugins=weights(w, ["ImageLocality"], 1))
