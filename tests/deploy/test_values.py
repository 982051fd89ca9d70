"""The chart's values: each has its sentence and its place in the closed schema."""

import json
import re
from pathlib import Path

import yaml

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart" / "slicewise"
TEXT = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def find_uncommented(text):
    """The lines of keys that no comment precedes; a block's own keys speak for the block."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        key = re.match(r"( *)([A-Za-z][A-Za-z0-9]*):(.*)$", line)
        if key is None:
            continue
        before = lines[number - 1].strip() if number else ""
        opens_block = not key[3].strip()
        indent = len(key[1])
        after = lines[number + 1] if number + 1 < len(lines) else ""
        documented_inside = opens_block and after.startswith(" " * (indent + 2) + "#")
        inside_documented = (
            indent and not before.startswith("#") and _value_of_documented(lines, number, indent)
        )
        if not (before.startswith("#") or documented_inside or inside_documented):
            found.append(line.strip())
    return found


def _value_of_documented(lines, number, indent):
    """Whether the key is part of a value whose own key has a comment, as in securityContext."""
    for above in range(number - 1, -1, -1):
        line = lines[above]
        depth = len(line) - len(line.lstrip())
        if line.strip() and not line.strip().startswith("#") and depth < indent:
            return lines[above - 1].strip().startswith("#") and not any(
                each.strip().startswith("#") for each in lines[above + 1 : number]
            )
    return False


def walk(values, schema, path=""):
    """The paths of values that the schema does not know."""
    schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    known = schema.get("properties")
    if known is None or not isinstance(values, dict):
        return
    for key, value in values.items():
        if key not in known:
            yield f"{path}{key}"
        else:
            yield from walk(value, known[key], f"{path}{key}.")


def find_open(schema, path=""):
    """Objects with named properties that take others as well."""
    if schema.get("properties") is not None and schema.get("additionalProperties") is not False:
        yield path
    for key, inner in schema.get("properties", {}).items():
        yield from find_open(inner, f"{path}.{key}")


def test_every_value_has_a_comment():
    assert find_uncommented(TEXT) == []


def test_missing_comment_is_found():
    assert find_uncommented("# Said.\na: 1\nb: 2\n") == ["b: 2"]


def test_every_value_stands_in_the_schema():
    assert list(walk(yaml.safe_load(TEXT), SCHEMA)) == []


def test_schema_is_closed_but_for_what_charts_above_share():
    assert list(find_open(SCHEMA)) == [".global"]


def test_sets_of_values_say_nothing_unknown():
    sets = sorted((CHART / "ci").glob("*-values.yaml"))

    assert len(sets) >= 6
    for path in sets:
        assert list(walk(yaml.safe_load(path.read_text()), SCHEMA)) == [], path.name
