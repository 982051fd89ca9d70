"""`slicewise claim -f pod.yaml`: the same manifests, asking for GPUs by ResourceClaim."""

from pathlib import Path
from typing import Any

import click
import yaml

from slicewise.cli.render.terminal import echo
from slicewise.cli.what_if import find_files, read_text
from slicewise.explain.claim_manifests import convert_manifest, write_device_class
from slicewise.explain.manifests import WITHOUT_PODS, ManifestError, parse_documents


@click.command("claim", short_help="Convert manifests to ResourceClaims.")
@click.option("-f", "--filename", "files", type=click.Path(path_type=Path), multiple=True,
              required=True,
              help="File of manifests, folder of such files, or - for standard input; can be "
              "repeated.")  # fmt: skip
@click.option("--device-class/--no-device-class", default=False, show_default=True,
              help="Print the DeviceClass that the claims name as well; a cluster needs it once."
              )  # fmt: skip
def claim(files: tuple[Path, ...], device_class: bool) -> None:
    """Print manifests that ask for the same GPUs by ResourceClaim, for nodes whose label
    slicewise.io/dra is all, shared or engine.

    Every system's resource names are understood; objects without GPUs are printed as they are.
    """
    try:
        documents: list[dict[str, Any]] = [write_device_class()] if device_class else []
        for path in files:
            for file in find_files(path):
                for each in parse_documents(str(file), read_text(file)):
                    makes_pods = each["kind"] not in WITHOUT_PODS
                    converted = convert_manifest(str(file), each) if makes_pods else (dict(each),)
                    documents += converted
    except ManifestError as error:
        raise click.ClickException(str(error)) from error
    for line in yaml.safe_dump_all(documents, sort_keys=False).splitlines():
        echo(line)
