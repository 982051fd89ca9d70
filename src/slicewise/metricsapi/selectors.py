"""Which objects a client wants of a list or watch: by name and by label, as kubectl asks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from slicewise.metricsapi.api_versions import ApiObject, DocumentWriter
from slicewise.model import SlicewiseError

_NAME: Final = "metadata.name"


class SelectorError(SlicewiseError):
    """A selector that cannot be served."""


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One condition: the value of a key is this, or is not."""

    key: str
    value: str
    equal: bool


def read_selector(query: Mapping[str, str], writer: DocumentWriter) -> Callable[[ApiObject], bool]:
    """Whether an object is wanted, by the selectors of a request."""
    fields = _read_terms("fieldSelector", query.get("fieldSelector", ""))
    for term in fields:
        if term.key != _NAME:
            raise SelectorError(f"fieldSelector {term.key!r}: expected {_NAME}")
    labels = _read_terms("labelSelector", query.get("labelSelector", ""))
    if not fields and not labels:
        return lambda _: True

    def wanted(item: ApiObject) -> bool:
        metadata = writer.write_metadata(item)
        own = metadata.get("labels", {})
        return all((metadata["name"] == t.value) == t.equal for t in fields) and all(
            (own.get(t.key) == t.value) == t.equal for t in labels
        )

    return wanted


def _read_terms(parameter: str, text: str) -> list[SelectorTerm]:
    terms = []
    for part in filter(None, text.split(",")):
        for sign in ("!=", "==", "="):
            key, found, value = part.partition(sign)
            if found:
                terms.append(SelectorTerm(key.strip(), value.strip(), sign != "!="))
                break
        else:
            raise SelectorError(f"{parameter} {part!r}: expected key=value or key!=value")
    return terms
