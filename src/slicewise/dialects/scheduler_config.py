"""What kube-scheduler's configuration says of extenders, as each system's users have it.

Old Policy files are read in any letter case, as old schedulers did, and written as the one form
that schedulers from 1.25 on accept, which is strict.
"""

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


class SchedulerConfigError(SlicewiseError):
    """A scheduler's policy that cannot be converted."""


def build_config(dialect: str, url: str, scheduler: str = "default-scheduler") -> dict[str, Any]:
    """The whole configuration for one system, or for all of them at once."""
    config = DEFAULT.extender_configs[SLICEWISE.name if dialect == ALL else dialect]
    # One bind verb is all a scheduler takes, so one extender serves every system.
    resources = tuple(sorted(DEFAULT.resources)) if dialect == ALL else config.resources
    verbs = {f"{name}Verb": word for name, word in config.verbs.items()}
    extender: dict[str, Any] = {"urlPrefix": url.rstrip("/") + config.path, **verbs}
    if "prioritizeVerb" in extender:
        extender["weight"] = 1
    extender["enableHTTPS"] = url.startswith("https:")
    extender["httpTimeout"] = "30s"
    extender["nodeCacheCapable"] = config.node_names
    extender["ignorable"] = config.ignorable
    if resources:
        extender["managedResources"] = [
            {"name": name, "ignoredByScheduler": name in DEFAULT.uncounted} for name in resources
        ]
    return _wrap([extender], scheduler)


def convert_policy(document: Any, url: str | None = None) -> tuple[dict[str, Any], list[str]]:
    """The configuration that an old Policy document amounts to, and what could not be kept."""
    policy = _lower(document, "the policy")
    if str(policy.get("kind", "")).lower() != "policy":
        raise SchedulerConfigError(f"kind={policy.get('kind')!r}: expected Policy")
    notes = [
        f"{key} is not carried over: plugins took the place of predicates and priorities"
        for key in ("predicates", "priorities", "hardpodaffinitysymmetricweight")
        if policy.get(key)
    ]
    extenders = [_convert_extender(each, url, notes) for each in policy.get("extenders") or []]
    return _wrap(extenders, "default-scheduler"), notes


def _convert_extender(document: Any, url: str | None, notes: list[str]) -> dict[str, Any]:
    old = _lower(document, "an extender")
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
    if url is not None:
        path = "/" + found.get("urlPrefix", "").partition("://")[2].partition("/")[2]
        found["urlPrefix"] = url.rstrip("/") + path.rstrip("/")
        found["enableHTTPS"] = url.startswith("https:")
    return {key: found[key] for key in _KEYS if key in found}


def _convert_value(name: str, value: Any) -> Any:
    match name:
        case "httpTimeout" if isinstance(value, int):
            # Policy files count nanoseconds.
            return f"{value / 1e9:g}s"
        case "tlsConfig":
            known, given = {key.lower(): key for key in _TLS_KEYS}, _lower(value, "tlsConfig")
            return {known[key]: each for key, each in given.items() if key in known and each}
        case "managedResources":
            rows = [_lower(each, "a managed resource") for each in value]
            return [
                {
                    "name": row.get("name"),
                    "ignoredByScheduler": bool(row.get("ignoredbyscheduler", False)),
                }
                for row in rows
            ]
        case _:
            return value


def _lower(document: Any, what: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise SchedulerConfigError(f"{what} is {document!r}: expected an object")
    return {str(key).lower(): value for key, value in document.items()}


def _wrap(extenders: list[dict[str, Any]], scheduler: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": scheduler}],
        "extenders": extenders,
    }
