"""Where a cluster keeps its scheduler's configuration: ConfigMaps, and the flags of its pods."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from slicewise.diagnose.findings import Finding, note, problem, warning
from slicewise.diagnose.scheduler import SCHEDULER, read_config
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.lists import list_all
from slicewise.kube.objects import Metadata
from slicewise.kube.watch import WatchSource

Check = Callable[[dict[str, Any], str], list[Finding]]
_NAMESPACE: Final = "kube-system"
_PROGRAM: Final = "kube-scheduler"
_FILES: Final = ("--config", "--policy-config-file")
_MAPS: Final = ("--policy-configmap",)


class _Container(msgspec.Struct):
    command: list[str] | None = None
    args: list[str] | None = None


class _Spec(msgspec.Struct):
    containers: list[_Container] = []


class _Pod(msgspec.Struct):
    metadata: Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


async def find_schedulers(client: Client, check: Check) -> list[Finding]:
    """What the configurations that can be found say; how to show the others."""
    maps = await list_all(client, sources.configmaps(_NAMESPACE))
    findings: list[Finding] = []
    for each in maps:
        for key, text in each.data.items():
            config = read_config(text) if "extenders" in text else None
            if config is not None:
                findings += check(config, f"ConfigMap {_NAMESPACE}/{each.name} {key}")
    if findings:
        return findings
    source = WatchSource(
        resource="pods",
        path=f"/api/v1/namespaces/{_NAMESPACE}/pods",
        body=_Pod,
        read=_read_flags,
        key=lambda metadata: metadata.uid,
    )
    schedulers = [found for found in await list_all(client, source) if found is not None]
    return list(_judge_flags(schedulers))


def _judge_flags(schedulers: list[tuple[str, dict[str, str]]]) -> Iterator[Finding]:
    show = "pass --scheduler-config with a copy of it"
    if not schedulers:
        what = f"no scheduler and no configuration of one is to be seen in {_NAMESPACE}"
        fix = "pass --scheduler-config with the file it is started with"
        yield warning(SCHEDULER, what, fix)
    for name, flags in schedulers:
        path = next((flags[flag] for flag in _FILES if flag in flags), None)
        if path is not None:
            yield note(SCHEDULER, f"{name} reads {path}, which is on its node alone", show)
        elif not any(flag in flags for flag in _MAPS):
            what = f"{name} is started without --config: it asks no extender"
            fix = "slicewise scheduler-config > FILE, and start it with --config=FILE"
            yield problem(SCHEDULER, what, fix)


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
