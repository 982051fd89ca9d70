"""Tools on the terminal, and what kubectl says to what people type."""

import re

from seeds.bed import A30_NODE, ROOT, SeedBed
from seeds.statement import clear_error, missing, works


@works
def inspect_summary(bed: SeedBed) -> None:
    """Eight GPUs of 23 GiB, in the document's own table; only the address is another."""
    lines = bed.inspected.splitlines()
    columns = [f"GPU{at}(Allocated/Total)" for at in range(8)]
    assert lines[0].split() == ["NAME", "IPADDRESS", *columns, "GPU", "Memory(GiB)"]
    assert lines[1].split()[0] == A30_NODE
    assert lines[1].split()[2:] == ["0/23"] * 8 + ["0/184"]
    assert re.fullmatch("-+", lines[2])
    assert lines[3:] == ["Allocated/Total GPU Memory In Cluster:", "0/184 (0%)  "]


@works
def inspect_details(bed: SeedBed) -> None:
    printed = bed.type("kubectl inspect gpushare -d", check=True).stdout
    assert f"NAME:       {bed.node.node.name}" in printed
    assert "Allocated/Total GPU Memory In Cluster:" in printed


@works
def inspect_command_is_installed(bed: SeedBed) -> None:
    """The program comes with the package, under the name that kubectl looks for."""
    assert bed.type("command -v kubectl-inspect-gpushare").returncode == 0
    assert "GPU memory" in bed.type("kubectl inspect gpushare -h", check=True).stdout


@works
def kubectl_get_pods(bed: SeedBed) -> None:
    assert "NAME" in bed.type("kubectl  get pods -n kube-system ", check=True).stdout


@clear_error
def label_with_placeholder(bed: SeedBed) -> None:
    """The shell names the placeholder that was not replaced."""
    for text in ("<node> nvidia-device-enable=enable", "<target_node> gpushare=true"):
        done = bed.type(f"kubectl label node {text}")
        name = text.partition(">")[0].lstrip("<")
        assert done.returncode
        assert f"{name}: No such file or directory" in done.stderr


@works
def label_of_gpu_manager(bed: SeedBed) -> None:
    name = bed.node.node.name
    bed.type(f"kubectl label node {name} nvidia-device-enable=enable --overwrite", check=True)
    assert bed.node.node_object()["metadata"]["labels"]["nvidia-device-enable"] == "enable"


@works
def label_of_gpushare(bed: SeedBed) -> None:
    name = bed.node.node.name
    bed.type(f"kubectl label node {name} gpushare=true --overwrite", check=True)
    assert bed.node.node_object()["metadata"]["labels"]["gpushare"] == "true"


@works
def documents_are_here(bed: SeedBed) -> None:
    assert (ROOT / "docs" / "architecture.md").is_file()
    assert (ROOT / "docs" / "dialects" / "tkestack.md").is_file()


@works
def faq_is_here(bed: SeedBed) -> None:
    assert (ROOT / "docs" / "faq.md").read_text().count("\n## ") >= 3


@works
def supported_versions(bed: SeedBed) -> None:
    """The cluster of this run is one of those that are named; older ones are said not to be."""
    pages = [path.read_text() for path in (ROOT / "docs").glob("*version*.md")]
    if not pages:
        raise missing("no page says yet which versions of Kubernetes were run")
    assert any(f"1.{bed.minor}" in page for page in pages)


@works
def no_compiler_of_go(bed: SeedBed) -> None:
    """Nothing of the product is written in Go."""
    assert not list((ROOT / "src").rglob("*.go"))


@works
def versions_follow_semver(bed: SeedBed) -> None:
    printed = bed.type("slicewise --version", check=True).stdout
    assert re.search(r"version \d+\.\d+\.\d+", printed)
    assert "Semantic Versioning" in (ROOT / "CHANGELOG.md").read_text()
