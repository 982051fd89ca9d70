"""Writes a CycloneDX list of the product and everything that it runs with, the same every time.

Licences come from each package's own metadata, hashes from the pins: those of every file that the
package is published as, because which of them an installation takes depends on its platform.
A time is in it only where SOURCE_DATE_EPOCH gives one.
"""

import json
import os
import sys
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from packaging.utils import canonicalize_name
from pins import PINS, Pin, find_required, read_pins

PRODUCT = "slicewise"
OPTIONAL = ("otel", "plot")
_SPEC = "1.6"
_NO_LICENCE = frozenset(("", "UNKNOWN"))
# Some packages put the whole text of their licence where its name should be.
_NAME_LETTERS = 100


def build_sbom(pins: dict[str, Pin], epoch: str | None = None) -> dict[str, Any]:
    """The document for what is installed here; raises KeyError for a package without a pin."""
    always = find_required([PRODUCT])
    graph = find_required([PRODUCT], OPTIONAL)
    product = _describe(PRODUCT)
    found: dict[str, Any] = {"component": {"type": "application", **product}}
    if epoch:
        found["timestamp"] = datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    components = [
        {
            "type": "library",
            **_describe(name),
            "scope": "required" if name in always else "optional",
            "hashes": [{"alg": "SHA-256", "content": each} for each in pins[name].hashes],
        }
        for name in graph
        if name != PRODUCT
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _SPEC,
        "version": 1,
        "metadata": found,
        "components": components,
        "dependencies": [
            {"ref": _purl(name), "dependsOn": [_purl(need) for need in needs]}
            for name, needs in graph.items()
        ],
    }


def _describe(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "bom-ref": _purl(name),
        "name": name,
        "version": metadata.version(name),
        "purl": _purl(name),
    }
    licences = _find_licences(metadata.metadata(name))
    return facts if not licences else {**facts, "licenses": licences}


def _find_licences(about: Any) -> list[dict[str, Any]]:
    expression = about.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    told = (about.get("License") or "").strip()
    if told not in _NO_LICENCE and "\n" not in told and len(told) <= _NAME_LETTERS:
        return [{"license": {"name": told}}]
    classifiers = [each for each in about.get_all("Classifier") or () if "License ::" in each]
    return [{"license": {"name": each.rpartition(" :: ")[2]}} for each in sorted(classifiers)]


def _purl(name: str) -> str:
    return f"pkg:pypi/{canonicalize_name(name)}@{metadata.version(name)}"


def main() -> None:
    document = build_sbom(read_pins(PINS.read_text()), os.environ.get("SOURCE_DATE_EPOCH"))
    json.dump(document, sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
