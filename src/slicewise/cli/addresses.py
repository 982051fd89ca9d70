"""Where a service listens: host and port as people and the originals write them."""

from collections.abc import Mapping
from typing import Final

import click

_NAME: Final = "nvidia-gpu-scheduler"
_NAMESPACE: Final = "kube-system"


def read_address(
    text: str | None, default: str, port: str | None = None, *, flag: str = "--address"
) -> tuple[str, int]:
    """Host and port; without an address the originals' PORT counts, on the default's host."""
    if text is None:
        host, _, fallback = default.rpartition(":")
        return host, int(port if port and port.isdecimal() else fallback)
    host, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal() or int(number) > 65535:
        raise click.BadParameter(f"{text!r}: expected host:port", param_hint=flag)
    return host.strip("[]") or "0.0.0.0", int(number)


def read_place(environment: Mapping[str, str]) -> tuple[str, str]:
    """Name and namespace of the Service: the pod's name without its last part."""
    pod = environment.get("MetadataName", "")
    name = pod.rpartition("-")[0] or _NAME
    return name, environment.get("MetadataNamespace") or _NAMESPACE
