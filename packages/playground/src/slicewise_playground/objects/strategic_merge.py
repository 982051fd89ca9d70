"""Strategic merge patch: lists merge by the key their type declares, or are replaced whole.

The directives that kubectl writes are understood: $patch, $deleteFromPrimitiveList,
$setElementOrder and $retainKeys.
"""

from collections.abc import Mapping
from typing import Any

from slicewise_playground.objects.errors import bad_request

MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "hostAliases": ("ip",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})

DIRECTIVE = "$patch"
DELETE_FROM = "$deleteFromPrimitiveList/"
ORDER = "$setElementOrder/"
RETAIN = "$retainKeys"


def strategic_merge(target: Any, patch: Any) -> Any:
    """The object after the patch."""
    if not isinstance(patch, dict):
        raise bad_request("strategic merge patch: expected an object")
    return _merge_maps(target if isinstance(target, dict) else {}, patch)


def _merge_maps(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The members of both, the patch's winning."""
    for key, value in patch.items():
        if key == RETAIN or key.startswith((DELETE_FROM, ORDER)):
            _check_list(key, value)
    directive = patch.get(DIRECTIVE)
    if not isinstance(directive, str | None):
        raise bad_request(f"strategic merge patch: unknown directive $patch={directive!r}")
    if directive == "replace":
        return {
            key: _clean(value)
            for key, value in patch.items()
            if not key.startswith("$") and value is not None
        }
    if directive == "delete":
        return {}
    if directive not in {None, "merge"}:
        raise bad_request(f"strategic merge patch: unknown directive $patch={directive!r}")
    result = dict(target)
    if RETAIN in patch:
        result = {key: value for key, value in result.items() if key in patch[RETAIN]}
    for key, value in patch.items():
        if key.startswith(DELETE_FROM):
            name = key.removeprefix(DELETE_FROM)
            result[name] = [item for item in result.get(name) or [] if item not in value]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_member(key, result.get(key), value)
    for key, order in patch.items():
        if key.startswith(ORDER):
            name = key.removeprefix(ORDER)
            if isinstance(result.get(name), list):
                result[name] = _reorder(name, result[name], order)
    return result


def _check_list(key: str, value: Any) -> None:
    """Refuse a directive whose value is no list."""
    if not isinstance(value, list):
        raise bad_request(f"strategic merge patch: {key}: expected a list, got {value!r}")


def _merge_member(name: str, old: Any, new: Any) -> Any:
    """One member after the patch."""
    if isinstance(new, dict):
        return _merge_maps(old if isinstance(old, dict) else {}, new)
    if not isinstance(new, list):
        return new
    current = old if isinstance(old, list) else []
    if name in PRIMITIVE_SETS:
        return [*current, *(item for item in new if item not in current)]
    key = _merge_key(name, [*current, *new])
    return _clean(new) if key is None else _merge_lists(current, new, key)


def _merge_key(name: str, items: list[Any]) -> str | None:
    """The key that tells the items of a list apart; None for lists replaced whole."""
    if not all(isinstance(item, dict) for item in items):
        return None
    keys = MERGE_KEYS.get(name, ())
    plain = [item for item in items if DIRECTIVE not in item] or items
    return next((key for key in keys if all(key in item for item in plain)), None)


def _merge_lists(
    old: list[dict[str, Any]], new: list[dict[str, Any]], key: str
) -> list[dict[str, Any]]:
    """The items of both lists, those with equal keys merged."""
    if any(item.get(DIRECTIVE) == "replace" for item in new):
        return [_clean(item) for item in new if DIRECTIVE not in item]
    result = [dict(item) for item in old]
    for item in new:
        if item.get(DIRECTIVE) == "delete":
            result = [kept for kept in result if kept.get(key) != item.get(key)]
            continue
        places = [at for at, kept in enumerate(result) if kept.get(key) == item.get(key)]
        if places:
            result[places[0]] = _merge_maps(result[places[0]], item)
        else:
            result.append(_clean(item))
    return result


def _reorder(name: str, items: list[Any], order: list[Any]) -> list[Any]:
    """The listed items in the wanted order; the others keep their place before what followed."""
    if all(isinstance(item, dict) for item in items):
        key = _merge_key(name, items)
        wanted = [entry.get(key) for entry in order if isinstance(entry, dict)]

        def identity(item: Any) -> Any:
            return item.get(key)
    else:
        wanted = list(order)

        def identity(item: Any) -> Any:
            return item

    listed = sorted(
        (item for item in items if identity(item) in wanted),
        key=lambda item: wanted.index(identity(item)),
    )
    rest = [item for item in items if identity(item) not in wanted]
    return [*listed, *rest]


def _clean(value: Any) -> Any:
    """The value without directives and nulls, as it is stored when there was none before."""
    if isinstance(value, dict):
        return {
            key: _clean(member)
            for key, member in value.items()
            if not key.startswith("$") and member is not None
        }
    if isinstance(value, list):
        return [
            _clean(item)
            for item in value
            if not (isinstance(item, dict) and item.get(DIRECTIVE) == "delete")
        ]
    return value
