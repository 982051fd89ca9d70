"""Writes the field names and types of what the playground serves, from Kubernetes's own OpenAPI.

Texts are left out: a type is a word, `[type]`, `{type}` for a map, or the name of another schema.
Run it with the path of `api/openapi-spec/swagger.json` of the version that the playground says.
"""

import json
import sys
from pathlib import Path
from typing import Any

from slicewise_playground.objects.resources import RESOURCES

TARGET = (
    Path(__file__).parents[1] / "packages/playground/src/slicewise_playground/objects/schemas.json"
)
_KIND = "x-kubernetes-group-version-kind"


def main(source: str) -> None:
    definitions = json.loads(Path(source).read_text())["definitions"]
    kinds = {
        (kind["group"], kind["version"], kind["kind"]): name
        for name, body in definitions.items()
        for kind in body.get(_KIND, ())
        if len(body[_KIND]) == 1
    }
    wanted = [kinds[row.group, row.version, row.kind] for row in RESOURCES]
    found: dict[str, dict[str, str] | str] = {}
    while wanted:
        name = wanted.pop()
        if _short(name) in found:
            continue
        body = definitions[name]
        properties = body.get("properties")
        found[_short(name)] = (
            _type(body, [])
            if properties is None
            else {key: _type(each, wanted) for key, each in properties.items()}
        )
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _type(body: dict[str, Any], wanted: list[str]) -> str:
    if "$ref" in body:
        name = body["$ref"].rpartition("/")[2]
        wanted.append(name)
        return _short(name)
    if body.get("type") == "array":
        return f"[{_type(body['items'], wanted)}]"
    if "additionalProperties" in body:
        return f"{{{_type(body['additionalProperties'], wanted)}}}"
    return str(body.get("type", "any"))


def _short(name: str) -> str:
    """`core.v1.Pod` of `io.k8s.api.core.v1.Pod`, which nothing else is called."""
    return ".".join(name.split(".")[-3:])


if __name__ == "__main__":
    main(sys.argv[1])
