"""CEL texts that name resources, marks and misspellings, made from what the dialects know.

CEL is Kubernetes' language of admission policies: what it cannot compute, such as how near two
names are, is computed here and written down as a table.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from slicewise.dialects import Dialects
from slicewise.dialects.shared.limits import CARRIER, AmountRule

# HAMi's, whose pods may run beside ours while a cluster is taken over.
FOREIGN_MARKS: Final = ("hami.io/bind-*", "hami.io/vgpu-*")
# Other software offers resources under these domains as well.
_SHARED_DOMAINS: Final = frozenset(("nvidia.com", "aliyun.com"))
CONTAINERS: Final = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
LIMITS: Final = "c.?resources.?limits.orValue({})"


def quote(text: str) -> str:
    """A string of CEL."""
    return json.dumps(text)


def quote_all(texts: Iterable[str]) -> str:
    """A list of strings of CEL."""
    return f"[{', '.join(map(quote, texts))}]"


def quote_map(table: Mapping[str, str]) -> str:
    """A map of strings of CEL, in the order of its keys."""
    rows = (f"{quote(key)}: {quote(table[key])}" for key in sorted(table))
    return f"{{{', '.join(rows)}}}"


def quote_pattern(pattern: str) -> str:
    """A regular expression as a raw string of CEL."""
    return f"r'{pattern}'"


def find_asking(dialects: Dialects) -> str:
    """Whether any container asks for a resource of ours."""
    names = quote_all(sorted(dialects.resources))
    return f"{CONTAINERS}.exists(c, {LIMITS}.exists(k, k in {names}))"


def find_carried(dialects: Dialects) -> str:
    """Whether container `c` asks for GPUs by memory alone, and names no carrier."""
    memory = quote_all(sorted(dialects.countable))
    others = quote_all(sorted({*dialects.resources, CARRIER} - dialects.countable))
    return f"({LIMITS}.exists(k, k in {memory}) && !{LIMITS}.exists(k, k in {others}))"


def match_marks(dialects: Dialects) -> str:
    """The regular expression of every annotation and label that tenants may not write."""
    words = sorted({*dialects.marks, *FOREIGN_MARKS})
    return _match_any(words, "$")


def write_mark_words(field: str) -> str:
    """How a refusal of annotations or labels begins, before it names them."""
    return f"these {field} are written by Slicewise alone: "


def match_own_domains(dialects: Dialects) -> str:
    """The regular expression of resources under domains that nobody but our systems uses."""
    domains = {name.partition("/")[0] for name in dialects.resources} - _SHARED_DOMAINS
    return _match_any(sorted(domains), "/")


def _match_any(words: Iterable[str], end: str) -> str:
    """One of these words and then the end; a star stands for anything, as a regular expression."""
    parts = (word.replace(".", r"\.").replace("*", ".*") for word in words)
    return f"^({'|'.join(parts)}){end}"


def list_misspellings(dialects: Dialects) -> dict[str, str]:
    """Names that people are likely to write, each with the one that was surely meant."""
    table = {}
    for name in sorted(dialects.resources):
        for variant in _vary(name, dialects.resources):
            found = dialects.spelling.find(variant)
            if found is not None and len(found.meant) == 1:
                table[variant] = found.meant[0]
    return table


def _vary(name: str, known: Iterable[str]) -> Iterator[str]:
    """A name as it is written in a hurry."""
    domain, _, rest = name.partition("/")
    endings = {rest + "s", rest.removesuffix("s"), rest.replace("-", "_"), rest.replace("-", "")}
    endings |= {rest.replace("memory", "mem"), rest.replace("core", "cores")}
    endings |= {rest.replace("mem", "memory") if "memory" not in rest else rest}
    endings |= set(_swap(rest))
    yield from (f"{domain}/{each}" for each in endings)
    yield from (f"{each.partition('/')[0]}/{rest}" for each in known)
    yield from (f"{each}/{rest}" for each in _swap(domain))
    stem, dot, ending = domain.rpartition(".")
    if dot:
        yield f"{stem}.{'io' if ending == 'com' else 'com'}/{rest}"
    yield rest


def _swap(word: str) -> Iterator[str]:
    """The word with each two neighbouring letters exchanged."""
    for at in range(len(word) - 1):
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def check_amounts(rules: Iterable[AmountRule]) -> tuple[str, str]:
    """Whether all amounts can be served, and the words about those that cannot."""
    faults = [fault for rule in rules for fault in _find_faults(rule)]
    every = " || ".join(fault for fault, _ in faults)
    words = " + ".join(f"({fault} ? [{said}] : [])" for fault, said in faults)
    told = f"({words}).map(t, 'container ' + c.name + ': ' + t).join('; ')"
    listed = f"variables.containers.map(c, {told}).filter(t, t != '').join('; ')"
    return f"!variables.containers.exists(c, {every})", listed


def _find_faults(rule: AmountRule) -> Iterator[tuple[str, str]]:
    """When the limits of a container `c` break the rule, and the words about it."""
    name = quote(rule.resource)
    written = f"string(c.resources.limits[{name}])"
    amount = f"quantity({written})"
    said = f"{quote(rule.resource + '=')} + {written} + "
    asked = f"{name} in {LIMITS}"
    bad = f"!{amount}.isInteger() || {amount}.asInteger() > {rule.most}"
    if rule.full > 1:
        over = f"{amount}.asInteger() > {rule.full}"
        bad += f" || ({over} && {amount}.asInteger() % {rule.full} != 0)"
    yield f"({asked} && ({bad}))", said + quote(f": expected {rule.expected}")
    if rule.beside is not None:
        part = f"{amount}.isInteger() && {amount}.asInteger() > 0"
        part += f" && {amount}.asInteger() < {rule.full}"
        lacks = f"!({quote(rule.beside)} in {LIMITS})"
        yield f"({asked} && {part} && {lacks})", said + quote(f": expected {rule.beside} beside it")
