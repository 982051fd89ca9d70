"""Where a cluster keeps its scheduler's configuration: ConfigMaps, and the flags of its pods."""

from typing import Final

import msgspec

from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.objects import Metadata
from slicewise.kube.reads import list_all
from slicewise.kube.watch import WatchSource

NAMESPACE: Final = "kube-system"
_PROGRAM: Final = "kube-scheduler"


class _Container(msgspec.Struct):
    command: list[str] | None = None
    args: list[str] | None = None


class _Spec(msgspec.Struct):
    containers: list[_Container] = []


class _Pod(msgspec.Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    kind: str = ""


async def list_config_texts(client: Client) -> list[tuple[str, str]]:
    """Every text of a ConfigMap that may configure a scheduler, with where it is."""
    maps = await list_all(client, sources.configmaps(NAMESPACE))
    return [
        (f"ConfigMap {NAMESPACE}/{each.name} {key}", text)
        for each in maps
        for key, text in each.data.items()
        if "extenders" in text
    ]


async def list_scheduler_flags(client: Client) -> list[tuple[str, dict[str, str]]]:
    """Every scheduler that runs as a pod, with the flags it was started with."""
    source = WatchSource(
        resource="pods",
        path=f"/api/v1/namespaces/{NAMESPACE}/pods",
        body=_Pod,
        read=_read_flags,
        key=sources.by_uid,
    )
    return [found for found in await list_all(client, source) if found is not None]


def _read_flags(pod: _Pod) -> tuple[str, dict[str, str]] | None:
    """A scheduler's name and flags; None for other pods."""
    for each in pod.spec.containers:
        words = [*(each.command or ()), *(each.args or ())]
        if any(word.rpartition("/")[2] == _PROGRAM for word in words[:1]):
            return f"pod {pod.metadata.name}", _split(words[1:])
    return None


def _split(words: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag.startswith("-"):
            flags["--" + flag.lstrip("-")] = value if equals else following
    return flags
