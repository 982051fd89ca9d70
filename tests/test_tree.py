"""What holds for the whole tree: sizes, names, words and import directions."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "src" / "slicewise"
PLAYGROUND = ROOT / "packages" / "playground" / "src" / "slicewise_playground"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS: list[dict[str, Any]] = PROJECT["tool"]["importlinter"]["contracts"]

MOST_MODULES = 25
MOST_LINES = 65_000
MOST_FILE_LINES = 410
# Where "card" is another system's word and is quoted: a file's path, and a part of its line.
FOREIGN_CARDS = (
    ("src/slicewise/nodeagent/compat/compat_metrics.py", '("node", "card")'),
    ("src/slicewise/nodeagent/compat/manager_pages.py", "card_idx"),
    ("src/slicewise/nodeagent/compat/display.py", "card_idx"),
    ("docs/agent.md", "| node, card |"),
    ("docs/limits.md", "`container_assigned_card`"),
    ("docs/seeds.md", "multi-card scheduling"),
)


def sources(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def classes(path: Path) -> Iterator[ast.ClassDef]:
    yield from (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))


def find_structs(paths: list[Path]) -> set[str]:
    """Names of classes that stand for bytes on a wire, their descendants included."""
    bases: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for each in classes(path):
            bases[each.name] |= {
                ast.unparse(base).split("[")[0].split(".")[-1] for base in each.bases
            }
    structs = {"Struct"}
    while more := {name for name, above in bases.items() if above & structs} - structs:
        structs |= more
    return structs


def is_wire(path: Path, found: ast.ClassDef, structs: set[str]) -> bool:
    """Whether a class has the name that its wire gives it."""
    if any(ast.unparse(base).split("[")[0].split(".")[-1] in structs for base in found.bases):
        return True
    return path.parent.name == "kubelet" and "slicewise.kubelet.codec import" in path.read_text()


def test_public_class_name_means_one_thing():
    paths = sources(PRODUCT, PLAYGROUND)
    structs = find_structs(paths)
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for each in classes(path):
            if not each.name.startswith("_") and not is_wire(path, each, structs):
                places[each.name].append(str(path.relative_to(ROOT)))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_folder_has_more_modules_than_one_can_survey():
    folders = {path.parent for path in sources(PRODUCT, PLAYGROUND)}
    counts = {str(each.relative_to(ROOT)): len(list(each.glob("*.py"))) for each in folders}

    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}


def test_no_file_is_longer_than_one_can_read_at_once():
    counts = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in sources(PRODUCT, PLAYGROUND)
    }

    assert {name: count for name, count in counts.items() if count > MOST_FILE_LINES} == {}


def test_product_stays_within_its_lines():
    assert sum(len(path.read_text().splitlines()) for path in sources(PRODUCT)) <= MOST_LINES


def test_packages_are_typed():
    assert (PRODUCT / "py.typed").exists()
    assert (PLAYGROUND / "py.typed").exists()


# Words


def texts() -> Iterator[Path]:
    kinds = {".py", ".md", ".yaml", ".yml", ".json", ".js", ".html", ".css", ".svg", ".c", ".h"}
    folders = ("src", "packages", "docs", "examples", "deploy", "native", "bench")
    for folder in folders:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in kinds)
    yield from sorted(ROOT.glob("*.md"))


def test_a_gpu_is_never_called_a_card():
    word = re.compile(r"(?<![A-Za-z])([Cc]ard|CARD)[sS]?(?![A-Za-z])|(?<=[a-z])Cards?(?![a-z])")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:90]}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line)
        and not any(str(path.relative_to(ROOT)) == f and part in line for f, part in FOREIGN_CARDS)
    ]

    assert found == []


# Import directions


def layers() -> list[set[str]]:
    """The rooms of each layer, the highest first."""
    (contract,) = (each for each in CONTRACTS if each["type"] == "layers")
    assert contract["containers"] == ["slicewise"]
    assert contract["exhaustive"] is True
    assert all(":" not in layer for layer in contract["layers"]), "siblings are independent"
    return [{room.strip() for room in layer.split("|")} for layer in contract["layers"]]


def allowed_by_contracts() -> dict[str, set[str]]:
    """Room by room what the contracts let it import."""
    levels = layers()
    allowed = {
        room: set().union(*levels[at + 1 :]) for at, level in enumerate(levels) for room in level
    }
    for contract in CONTRACTS:
        if contract["type"] == "forbidden":
            for source in contract["source_modules"]:
                room = source.removeprefix("slicewise.")
                if source.startswith("slicewise.") and "." not in room:
                    forbidden = {
                        each.removeprefix("slicewise.") for each in contract["forbidden_modules"]
                    }
                    allowed[room] -= forbidden
    return allowed


def allowed_by_table() -> dict[str, set[str]]:
    """Room by room what the table of the architecture page lets it import."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE)
    rooms = {room for room, _ in rows}
    return {
        room: rooms - {room} if cell == "every room" else set(re.findall(r"`(\w+)`", cell))
        for room, cell in rows
    }


def test_contracts_say_what_the_architecture_page_says():
    assert allowed_by_contracts() == allowed_by_table()


def test_every_room_has_a_row():
    rooms = {path.parent.name for path in PRODUCT.glob("*/__init__.py")}

    assert rooms == set(allowed_by_table())


@pytest.mark.parametrize("service", ["extender", "metricsapi", "nodeagent", "dashboard"])
def test_only_run_builds_the_edges_of_a_service(service):
    edges = {"Client", "LibraryDriver", "SimulatedDriver", "PodResourcesClient", "RuntimeClient"}
    built = {
        f"{path.relative_to(PRODUCT)}: {node.func.id}"
        for path in sources(PRODUCT / service)
        # An audit without an agent is a run of its own.
        if path.name not in {"run.py", "direct.py"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in edges
    }

    assert built == set()


# Documents


def test_every_decision_has_a_status_and_stands_in_the_index():
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    rows = []
    for page in sorted(folder.glob("0*.md")):
        title, _, status, *_ = page.read_text().splitlines()
        assert title.startswith(f"# {page.name[:4]}: "), page.name
        assert re.fullmatch(r"Status: (Accepted|Superseded)\b.*\.", status), page.name
        rows.append(
            f"| [{title[2:]}]({page.name}) | {status.removeprefix('Status: ').rstrip('.')} |"
        )

    assert re.findall(r"^\| \[.*$", index, re.MULTILINE) == rows


def test_every_dependency_has_a_reason():
    page = (ROOT / "docs" / "decisions" / "0005-dependencies.md").read_text()
    named = {
        name.strip()
        for row in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
        for name in row.split(",")
    }
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    needed = {re.split(r"[<>=\[; ]", each)[0] for group in lists for each in group}

    assert needed - named == set()
    assert named - needed - {"library", "---"} == set()


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_between_documents_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())

    assert [each for each in links if "://" not in each and not (page.parent / each).exists()] == []


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_files_that_documents_name_are_there(page):
    tops = "src|tests|docs|examples|deploy|packages|native"
    named = re.findall(rf"`((?:{tops})/[\w./-]+)`", page.read_text())

    assert [each for each in named if not (ROOT / each).exists()] == []
