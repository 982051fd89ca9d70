"""Scheduler configurations that users have, of any age, as the one form that schedulers read today.

Read are Policy files, KubeSchedulerConfigurations of every version, and bare extenders as they
stand in documents. What has no counterpart is left out and named, never guessed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from slicewise.dialects.scheduler_config import (
    API_VERSION,
    DEFAULT_NAME,
    ExtenderTls,
    SchedulerConfigError,
    check_tls,
    check_url,
    convert_extender,
    lower_keys,
    wrap,
)

GROUP: Final = "kubescheduler.config.k8s.io"
KIND: Final = "KubeSchedulerConfiguration"
SERVED: Final[Mapping[str, tuple[int, int | None]]] = {
    "v1alpha1": (0, 18),
    "v1alpha2": (18, 18),
    "v1beta1": (19, 22),
    "v1beta2": (22, 27),
    "v1beta3": (23, 28),
    "v1": (25, None),
}
"""The first and the last minor version of Kubernetes 1 whose scheduler reads the version."""
POLICY_UNTIL: Final = 22
"""The last minor version whose scheduler reads a Policy."""
_KEPT: Final = (
    "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "podInitialBackoffSeconds", "podMaxBackoffSeconds",
)  # fmt: skip
_POLICY_LOST: Final = ("predicates", "priorities", "hardpodaffinitysymmetricweight")
_PLUGINS: Final = "plugins took the place of predicates and priorities"
# Versions in which plugins have the names, and their arguments the form, that v1 knows.
_SAME_PLUGINS: Final = ("v1beta2", "v1beta3", "v1")
_GONE_PLUGINS: Final = frozenset(
    {"NodeLabel", "ServiceAffinity", "NodePreferAvoidPods", "SelectorSpread"}
)
_LOCKS: Final = {"lockObjectName": "resourceName", "lockObjectNamespace": "resourceNamespace"}


@dataclass(slots=True)
class Conversion:
    """How a document is converted, and what is to be said of it."""

    url: str | None = None
    """Address of the extender in place of the document's."""
    scheduler: str | None = None
    """Name of the scheduler in place of the document's."""
    tls: ExtenderTls | None = None
    """Files of TLS in place of the document's."""
    strict: bool = True
    """Whether addresses and files that would not work are refused."""
    notes: list[str] = field(default_factory=list)
    """What could not be kept, one sentence each."""


def convert_document(document: Any, how: Conversion) -> dict[str, Any]:
    """The configuration that the document amounts to; raises what a person must mend."""
    if isinstance(document, list) and document:
        return _convert_fragment(document, how)
    given = lower_keys(document, "the document")
    kind, version = str(given.get("kind") or ""), str(given.get("apiversion") or "")
    if kind.lower() == "policy":
        return _convert_policy(given, how)
    if kind == KIND or (not kind and version.startswith(GROUP)):
        if not kind:
            how.notes.append(f"kind is missing: read as {KIND}")
        return _convert_configuration(document, version, how)
    if not kind and "extenders" in given:
        return _convert_fragment(given["extenders"] or [], how)
    if not kind and "urlprefix" in given:
        return _convert_fragment([document], how)
    raise SchedulerConfigError(
        f"kind={given.get('kind')!r}: expected Policy, {KIND}, or an extender with its urlPrefix"
    )


def _convert_policy(policy: Mapping[str, Any], how: Conversion) -> dict[str, Any]:
    how.notes += [f"{key} is not carried over: {_PLUGINS}" for key in _POLICY_LOST if key in policy]
    return wrap(_convert_extenders(policy.get("extenders"), how), how.scheduler or DEFAULT_NAME)


def _convert_fragment(extenders: list[Any], how: Conversion) -> dict[str, Any]:
    how.notes.append("a part of a configuration: put around it what kube-scheduler needs")
    return wrap(_convert_extenders(extenders, how), how.scheduler or DEFAULT_NAME)


def _convert_extenders(given: Any, how: Conversion) -> list[dict[str, Any]]:
    rows = given or []
    if not isinstance(rows, list):
        raise SchedulerConfigError(f"extenders is {rows!r}: expected a list")
    found = [convert_extender(each, how.notes, url=how.url, tls=how.tls) for each in rows]
    for each in found if how.strict else ():
        check_url(each)
        check_tls(each)
    return found


def _convert_configuration(
    document: Mapping[str, Any], api_version: str, how: Conversion
) -> dict[str, Any]:
    version = api_version.rpartition("/")[2]
    if api_version and (not api_version.startswith(f"{GROUP}/") or version not in SERVED):
        words = ", ".join(SERVED)
        raise SchedulerConfigError(f"apiVersion={api_version!r}: expected {GROUP}/ and {words}")
    if version != "v1":
        how.notes.append(f"apiVersion {api_version or 'is missing: it'} becomes {API_VERSION}")
    config = wrap(_convert_extenders(document.get("extenders"), how), DEFAULT_NAME)
    config["profiles"] = _convert_profiles(document, version, how)
    for key in _KEPT:
        if document.get(key) is not None:
            config[key] = document[key]
    if "leaderElection" in config:
        config["leaderElection"] = _convert_election(config["leaderElection"])
    _name_lost(document, how)
    order = ("apiVersion", "kind", *_KEPT, "percentageOfNodesToScore", "profiles", "extenders")
    return {key: config[key] for key in order if key in config}


def _name_lost(document: Mapping[str, Any], how: Conversion) -> None:
    known = {
        "apiVersion", "kind", "extenders", "profiles", "schedulerName",
        "percentageOfNodesToScore", *_KEPT,
    }  # fmt: skip
    source = document.get("algorithmSource")
    policy = source.get("policy") if isinstance(source, Mapping) else None
    if policy:
        how.notes.append(
            f"algorithmSource names the Policy {json.dumps(policy)}: convert that with --from too"
        )
        known.add("algorithmSource")
    lost = [str(key) for key in document if key not in known]
    if lost:
        how.notes.append(f"{', '.join(lost)} not carried over: {API_VERSION} has no such key")


def _convert_profiles(
    document: Mapping[str, Any], version: str, how: Conversion
) -> list[dict[str, Any]]:
    rows = document.get("profiles") or [{"schedulerName": document.get("schedulerName")}]
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise SchedulerConfigError(f"profiles is {rows!r}: expected a list of objects")
    profiles = [_convert_profile(row, version, how) for row in rows]
    names = [profile["schedulerName"] for profile in profiles]
    if how.scheduler is not None and how.scheduler not in names:
        if len(profiles) == 1:
            profiles[0]["schedulerName"] = how.scheduler
        else:
            profiles.append({"schedulerName": how.scheduler})
    return profiles


def _convert_profile(row: Mapping[str, Any], version: str, how: Conversion) -> dict[str, Any]:
    profile: dict[str, Any] = {"schedulerName": row.get("schedulerName") or DEFAULT_NAME}
    given = {key: row[key] for key in ("plugins", "pluginConfig") if row.get(key)}
    if given and version not in _SAME_PLUGINS:
        how.notes.append(
            f"{' and '.join(given)} of profile {profile['schedulerName']} not carried over: "
            f"names and arguments of plugins changed after {version or 'its version'}"
        )
        return profile
    if "plugins" in given:
        profile["plugins"] = _drop_plugins(given["plugins"], how)
    if "pluginConfig" in given:
        profile["pluginConfig"] = _renew_arguments(given["pluginConfig"])
    return profile


def _drop_plugins(value: Any, how: Conversion) -> Any:
    """The same without plugins that no longer exist."""
    if isinstance(value, Mapping):
        return {key: _drop_plugins(each, how) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    kept = []
    for each in value:
        name = each.get("name") if isinstance(each, Mapping) else None
        if name in _GONE_PLUGINS:
            how.notes.append(f"plugin {name} is left out: schedulers no longer have it")
        else:
            kept.append(each)
    return kept


def _renew_arguments(value: Any) -> Any:
    """The same with today's version in what names one."""
    if isinstance(value, Mapping):
        return {
            key: API_VERSION
            if key == "apiVersion" and str(each).startswith(f"{GROUP}/")
            else _renew_arguments(each)
            for key, each in value.items()
        }
    return [_renew_arguments(each) for each in value] if isinstance(value, list) else value


def _convert_election(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    election = {_LOCKS.get(key, key): value for key, value in given.items()}
    if "resourceLock" in election:
        # Leases are the only lock that is left.
        election["resourceLock"] = "leases"
    return election
