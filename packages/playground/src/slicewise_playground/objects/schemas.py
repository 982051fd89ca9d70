"""Every field of every kind that is served: for strict validation and for OpenAPI.

`supply/playground_schemas.py` writes the file from Kubernetes's own OpenAPI: a type is a word,
`[type]`, `{type}` for a map, or the name of another schema.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from slicewise_playground.objects.errors import bad_request
from slicewise_playground.objects.resources import ApiResource, Object

Fields = dict[str, str] | str
SCHEMAS: Final = msgspec.json.decode(
    (Path(__file__).parent / "schemas.json").read_bytes(), type=dict[str, Fields]
)
_GROUP_VERSION_KIND: Final = "x-kubernetes-group-version-kind"


def schema_name(resource: ApiResource) -> str:
    """What the schema of a resource's kind is called."""
    group = resource.group.partition(".")[0] or "core"
    return f"{group}.{resource.version}.{resource.kind}"


def unknown_fields(resource: ApiResource, body: Object) -> list[str]:
    """The paths of fields that the kind does not have, as the real server spells them."""
    return list(_find_unknown(schema_name(resource), body, ""))


def check_fields(resource: ApiResource, body: Object, query: Mapping[str, str]) -> list[str]:
    """Refuse unknown fields if the client asks for it; else the warnings that they deserve."""
    wish = query.get("fieldValidation") or "Warn"
    found = [] if wish == "Ignore" else unknown_fields(resource, body)
    problems = [f'unknown field "{path}"' for path in found]
    if problems and wish == "Strict":
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a '
            f"{resource.kind}: strict decoding error: {', '.join(problems)}"
        )
    return problems


def write_schemas(rows: Iterable[ApiResource], folder: str) -> Object:
    """The schemas of these resources and of all they are made of; references lead into a folder."""
    kinds = {schema_name(row): row for row in rows}
    wanted, written = list(kinds), {}
    while wanted:
        name = wanted.pop()
        if name in written:
            continue
        written[name] = _write_schema(SCHEMAS[name], folder, wanted)
        if row := kinds.get(name):
            kind = {"group": row.group, "version": row.version, "kind": row.kind}
            written[name][_GROUP_VERSION_KIND] = [kind]
    return dict(sorted(written.items()))


def _find_unknown(kind: str, value: Any, path: str) -> Iterator[str]:
    if kind.startswith("[") and isinstance(value, list):
        for at, each in enumerate(value):
            yield from _find_unknown(kind[1:-1], each, f"{path}[{at}]")
    elif kind.startswith("{") and isinstance(value, dict):
        for key, each in value.items():
            yield from _find_unknown(kind[1:-1], each, f"{path}.{key}")
    elif isinstance(fields := SCHEMAS.get(kind), dict) and isinstance(value, dict):
        for key, each in value.items():
            step = f"{path}.{key}" if path else key
            if key not in fields:
                yield step
            else:
                yield from _find_unknown(fields[key], each, step)


def _write_schema(fields: Fields, folder: str, wanted: list[str]) -> Object:
    if isinstance(fields, str):
        return _write_type(fields, folder, wanted)
    properties = {key: _write_type(each, folder, wanted) for key, each in fields.items()}
    return {"type": "object", "properties": properties}


def _write_type(kind: str, folder: str, wanted: list[str]) -> Object:
    if kind.startswith("["):
        return {"type": "array", "items": _write_type(kind[1:-1], folder, wanted)}
    if kind.startswith("{"):
        inner = _write_type(kind[1:-1], folder, wanted)
        return {"type": "object", "additionalProperties": inner}
    if kind in SCHEMAS:
        wanted.append(kind)
        return {"$ref": f"{folder}{kind}"}
    return {} if kind == "any" else {"type": kind}
