"""What kube-scheduler's configuration says of extenders, as each system's users have it.

Old extenders are read in any letter case, as old schedulers did, and written as the one form
that schedulers from 1.25 on accept, which is strict. `scheduler_documents` reads whole files.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from slicewise.dialects import DEFAULT, SLICEWISE
from slicewise.model import SlicewiseError

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_KEYS: Final = (
    "urlPrefix", "filterVerb", "preemptVerb", "prioritizeVerb", "bindVerb", "weight",
    "enableHTTPS", "tlsConfig", "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable",
)  # fmt: skip
_TLS_KEYS: Final = (
    "insecure", "serverName", "certFile", "keyFile", "caFile", "certData", "keyData", "caData",
)  # fmt: skip
ALL: Final = "all"
DEFAULT_NAME: Final = "default-scheduler"
# The way through the API server to a Service, which a scheduler's own address leaves out.
_PROXY: Final = re.compile(r"/api/v1/namespaces/[^/]+/services/[^/]+/proxy(?=/|$)")
_AGGREGATED: Final = "/apis/"


class SchedulerConfigError(SlicewiseError):
    """A scheduler's configuration that cannot be built or converted."""


@dataclass(frozen=True, slots=True)
class ExtenderTls:
    """Files on the scheduler's host: whom it trusts, and what it shows of itself."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None

    def describe(self) -> dict[str, str]:
        """The files as the configuration names them."""
        given = {"caFile": self.authority, "certFile": self.certificate, "keyFile": self.key}
        return {name: path for name, path in given.items() if path}


def build_config(
    dialect: str, url: str, scheduler: str = DEFAULT_NAME, tls: ExtenderTls | None = None
) -> dict[str, Any]:
    """The whole configuration for one system, or for all of them at once."""
    config = DEFAULT.extender_configs[SLICEWISE.name if dialect == ALL else dialect]
    # One bind verb is all a scheduler takes, so one extender serves every system.
    resources = tuple(sorted(DEFAULT.resources)) if dialect == ALL else config.resources
    verbs = {f"{name}Verb": word for name, word in config.verbs.items()}
    extender: dict[str, Any] = {"urlPrefix": url.rstrip("/") + config.path, **verbs}
    if "prioritizeVerb" in extender:
        extender["weight"] = 1
    extender["enableHTTPS"] = url.startswith("https:")
    if tls is not None and tls.describe():
        extender["tlsConfig"] = tls.describe()
    extender["httpTimeout"] = "30s"
    extender["nodeCacheCapable"] = config.node_names
    extender["ignorable"] = config.ignorable
    check_tls(extender)
    if resources:
        extender["managedResources"] = [
            {"name": name, "ignoredByScheduler": name in DEFAULT.uncounted} for name in resources
        ]
    return wrap([extender], scheduler)


def check_tls(extender: Mapping[str, Any]) -> None:
    """Refuse https that would be tried without what it needs, since pods would go on unfiltered."""
    url, tls = str(extender.get("urlPrefix", "")), extender.get("tlsConfig") or {}
    if not url.startswith("https:") or tls.get("insecure"):
        return
    missing = []
    if not (tls.get("caFile") or tls.get("caData")):
        missing.append("--tls-ca with the authority of its certificate")
    # The API server in front of an aggregated API knows the scheduler by nothing else.
    shows = _AGGREGATED in url or tls.get("certFile") or tls.get("keyFile")
    if shows and not (tls.get("certFile") or tls.get("certData")):
        missing.append("--tls-cert with the scheduler's own certificate")
    if shows and not (tls.get("keyFile") or tls.get("keyData")):
        missing.append("--tls-key with the key of that certificate")
    if missing:
        unfiltered = ", and pods are placed without it" if extender.get("ignorable") else ""
        raise SchedulerConfigError(
            f"extender {url}: https fails without its files{unfiltered}: "
            f"pass {' and '.join(missing)}, as paths on the scheduler's host"
        )


def convert_extender(
    document: Any, notes: list[str], *, url: str | None = None, tls: ExtenderTls | None = None
) -> dict[str, Any]:
    """One extender in today's form, asked at another address where one is given."""
    old = lower_keys(document, "an extender")
    known = {key.lower(): key for key in _KEYS}
    found: dict[str, Any] = {}
    for key, value in old.items():
        name = known.get(key)
        if name is None:
            if key != "apiversion":
                notes.append(f"extender key {key!r} is unknown and left out")
        elif value is not None and value != "":
            found[name] = _convert_value(name, value)
    if "prioritizeVerb" in found:
        found.setdefault("weight", 1)
    found["urlPrefix"] = _choose_url(str(found.get("urlPrefix") or ""), url)
    if found["urlPrefix"].startswith("https:") or url is not None:
        found["enableHTTPS"] = found["urlPrefix"].startswith("https:")
    if tls is not None and tls.describe():
        found["tlsConfig"] = {**found.get("tlsConfig", {}), **tls.describe()}
    return {key: found[key] for key in _KEYS if key in found}


def _choose_url(old: str, url: str | None) -> str:
    if url is None:
        return old
    path = _PROXY.sub("", "/" + old.partition("://")[2].partition("/")[2])
    return url.rstrip("/") + path.rstrip("/")


def check_url(extender: Mapping[str, Any]) -> None:
    """Refuse an address that is none, such as a document's placeholder."""
    url = str(extender.get("urlPrefix") or "")
    if not url.startswith(("http://", "https://")) or "<" in url:
        raise SchedulerConfigError(
            f"urlPrefix={url!r}: expected an address like http://127.0.0.1:3456/scheduler; "
            "write it there, or pass --url with that of the extender"
        )


def _convert_value(name: str, value: Any) -> Any:
    match name:
        case "httpTimeout" if isinstance(value, int):
            # Policy files count nanoseconds.
            return f"{value / 1e9:g}s"
        case "tlsConfig":
            known, given = {key.lower(): key for key in _TLS_KEYS}, lower_keys(value, "tlsConfig")
            return {known[key]: each for key, each in given.items() if key in known and each}
        case "managedResources":
            rows = [lower_keys(each, "a managed resource") for each in value]
            return [
                {
                    "name": row.get("name"),
                    "ignoredByScheduler": bool(row.get("ignoredbyscheduler", False)),
                }
                for row in rows
            ]
        case _:
            return value


def lower_keys(document: Any, what: str) -> dict[str, Any]:
    """The object with its keys in small letters."""
    if not isinstance(document, dict):
        raise SchedulerConfigError(f"{what} is {document!r}: expected an object")
    return {str(key).lower(): value for key, value in document.items()}


def wrap(extenders: list[dict[str, Any]], scheduler: str) -> dict[str, Any]:
    """A configuration of nothing but these extenders."""
    return {
        "apiVersion": API_VERSION,
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": scheduler}],
        "extenders": extenders,
    }
