"""`make image`: builds the image, writes its archive and prints its size."""

import argparse
import sys
import time
from pathlib import Path

from hack.image.engines import NAMES, Engine, ImageError, choose
from hack.image.image_build import ROOT, Image, build, provenance, read_archive

_MEGABYTE = 10**6
# In the Dockerfile's order; an engine without shared layers makes one of them.
_LAYERS = ("runtime", "dependencies", "bayplan")


def main(arguments: list[str] | None = None) -> int:
    """Build the image of Bayplan with docker, podman or buildah."""
    parser = argparse.ArgumentParser(prog="python -m hack.image", description=main.__doc__)
    parser.add_argument("--engine", choices=NAMES, help="Engine; the first installed one by default")
    parser.add_argument("--tag", help="Tag; localhost/bayplan:<version> by default")
    parser.add_argument("--archive", type=Path, default=ROOT / "dist" / "bayplan-image.tar", help="File to write")
    parser.add_argument("--extras", default="", help="Extra of the package to install, such as otel")
    parser.add_argument("--no-cache", action="store_true", help="Build without cached layers")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        engine = choose(given.engine)
        origin = provenance()
        tag = given.tag or f"localhost/bayplan:{origin.image_tag}"
        sys.stderr.write(f"image: building {tag} with {engine.name} ...\n")
        build(engine, tag, origin, cached=not given.no_cache, extras=given.extras)
        engine.save(tag, given.archive)
        image = read_archive(given.archive)
    except ImageError as problem:
        sys.stderr.write(f"image: {problem}\n")
        return 1
    _print_size(engine, tag, image)
    print(f"built in {time.monotonic() - began:.0f} s")
    return 0


def _print_size(engine: Engine, tag: str, image: Image) -> None:
    count = len(image.layer_bytes)
    names = _LAYERS if count == len(_LAYERS) else tuple(f"layer {number}" for number in range(1, count + 1))
    print(f"{tag}  {sum(image.layer_bytes) / _MEGABYTE:.0f} MB in {count} layers")
    for size, name in zip(image.layer_bytes, names, strict=True):
        print(f"  {size / _MEGABYTE:6.1f} MB  {name}")
    print(f"id sha256:{image.identity}")
    print(f"archive {image.archive}")
    if engine.name != "docker":
        print(f"load it with `podman load --input {image.archive}` or `docker load --input {image.archive}`")


if __name__ == "__main__":
    sys.exit(main())
