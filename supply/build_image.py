"""Builds the image of one or several architectures into out/image/, with an SBOM beside each.

`python supply/build_image.py [amd64] [arm64]`; without names, both.
"""

import json
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from image import recipe
from image.debian import DebianPackage, fetch_packages
from image.limiter import build_limiter
from image.oci import pack_layer, write_archive
from image.recipe import ARCHITECTURES, Architecture
from image.rootfs import make_application, make_base
from image.wheels import PRODUCT, Wheel, build_product, fetch_wheels

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "image"
_MIB = 1 << 20


def build(architecture: Architecture, product: Wheel, out: Path) -> str:
    """A line about the archive that was written: its name, sizes and digest."""
    began = time.monotonic()
    cache = out / "cache"
    packages = fetch_packages(architecture, cache)
    wheels = (*fetch_wheels(architecture, cache), product)
    limiter = build_limiter(ROOT / "native" / "limiter", architecture, cache)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        base, application = Path(scratch) / "base", Path(scratch) / "application"
        make_base(packages, base)
        make_application(wheels, limiter, application)
        layers = (pack_layer(base), pack_layer(application))
    name = f"slicewise-{product.version}-{architecture.name}"
    digest = write_archive(
        out / f"{name}.tar",
        layers,
        architecture=architecture.name,
        configuration=recipe.write_configuration(),
        reference=f"{PRODUCT}:{product.version}",
    )
    sbom = write_sbom(packages, wheels, digest)
    (out / f"{name}.cdx.json").write_text(json.dumps(sbom, indent=2, sort_keys=True) + "\n")
    unpacked = sum(each.unpacked_bytes for each in layers) / _MIB
    packed = sum(len(each.compressed) for each in layers) / _MIB
    seconds = time.monotonic() - began
    sizes = f"{unpacked:.1f} MiB unpacked, {packed:.1f} MiB compressed"
    lacking = "" if limiter else "  without the limiter, for there is no compiler for it"
    return f"{name}.tar  {sizes}, {seconds:.0f} s  {digest}{lacking}"


def write_sbom(
    packages: tuple[DebianPackage, ...], wheels: tuple[Wheel, ...], digest: str
) -> dict[str, Any]:
    """A CycloneDX document of every package and wheel, each with the hash of its file."""
    listed = [
        (each.name, each.version, each.sha256, f"pkg:deb/debian/{each.name}@{each.version}")
        for each in packages
    ]
    listed += [
        (each.name, each.version, each.sha256, f"pkg:pypi/{each.name}@{each.version}")
        for each in wheels
    ]
    components = [
        {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
            "hashes": [{"alg": "SHA-256", "content": sha256}],
        }
        for name, version, sha256, purl in sorted(listed)
    ]
    image = {"type": "container", "name": PRODUCT, "version": digest, "bom-ref": f"oci:{digest}"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": image},
        "components": components,
    }


def main() -> None:
    """Build what the command line names."""
    known = {each.name: each for each in ARCHITECTURES}
    names = sys.argv[1:] or list(known)
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"{unknown[0]}: expected one of {', '.join(known)}")
    began = time.monotonic()
    OUT.mkdir(parents=True, exist_ok=True)
    product = build_product(ROOT, OUT / "cache")
    # Each waits for the network first and for a core later, and shares nothing with the other.
    with ProcessPoolExecutor(len(names)) as pool:
        works = [pool.submit(build, known[name], product, OUT) for name in names]
        for work in works:
            print(work.result(), flush=True)
    print(f"built within {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
