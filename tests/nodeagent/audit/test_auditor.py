import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from nodeagent import scenes
from slicewise.diagnose.audit_report import AuditKind, AuditVerdict, write_audit
from slicewise.diagnose.evidence import SpecFile
from slicewise.kubelet.errors import KubeletError
from slicewise.kubelet.holders import Holder
from slicewise.nodeagent.audit.auditor import Auditor, EvidenceCollector
from slicewise.nodeagent.usage.cgroups import ProcessTable
from slicewise.nodeagent.usage.sampler import UsageSampler

CORES = "slicewise.io/cores"
LEAK = Holder("ml", "gone", "c0", {CORES: frozenset({"1"})})


@dataclass
class FakeKubelet:
    """A kubelet that lists what the test gave it, or refuses."""

    holders: list[Holder] = field(default_factory=list)
    broken: bool = False

    async def list(self):
        if self.broken:
            raise KubeletError("no such socket")
        return list(self.holders)


@dataclass
class Scene:
    """An auditor and everything it looks at."""

    kubelet: FakeKubelet
    driver: scenes.FakeDriver
    between: list[Callable[[], None]] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    specs: Callable[[], list[SpecFile]] | None = None
    gaps: tuple[str, ...] = ()

    def audit(self, root):
        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            for change in self.between:
                change()

        views = EvidenceCollector(
            pods=scenes.FakeNodePods(),
            sampler=UsageSampler(self.driver, ProcessTable(root)),
            kubelet=self.kubelet,
            specs=self.specs,
            resources=frozenset({CORES}),
            served=frozenset({CORES}),
            gaps=lambda: self.gaps,
        )
        return asyncio.run(Auditor(views.collect, pause=pause).audit())


@pytest.fixture
def scene():
    return Scene(FakeKubelet(), scenes.FakeDriver({"GPU-0": scenes.load()}))


def test_a_clean_node_is_looked_at_once(scene, tmp_path):
    assert scene.audit(tmp_path).verdict is AuditVerdict.CLEAN
    assert (scene.driver.asked, scene.pauses) == (1, [])


def test_what_is_wrong_is_looked_at_twice(scene, tmp_path):
    scene.kubelet.holders = [LEAK]
    report = scene.audit(tmp_path)

    assert [each.topic for each in report.findings] == [AuditKind.KUBELET_LEAK]
    assert (scene.driver.asked, scene.pauses) == (2, [2.0])


def test_what_rights_itself_is_not_told(scene, tmp_path):
    scene.kubelet.holders = [LEAK]
    scene.between.append(scene.kubelet.holders.clear)

    assert scene.audit(tmp_path).verdict is AuditVerdict.CLEAN


@pytest.mark.parametrize("part", ["kubelet", "driver", "specs", "gaps"])
def test_whoever_does_not_answer_is_a_gap(scene, tmp_path, part):
    def refuse() -> list[SpecFile]:
        raise PermissionError(13, "Permission denied", "/var/run/cdi")

    if part == "kubelet":
        scene.kubelet.broken = True
    elif part == "driver":
        scene.driver.broken = True
    elif part == "specs":
        scene.specs = refuse
    else:
        scene.gaps = ("the API server: it was never reached",)
    report = scene.audit(tmp_path)

    assert report.verdict is AuditVerdict.UNKNOWN
    assert len(report.gaps) == 1


def test_findings_are_told_as_json_with_their_remedies(scene, tmp_path):
    scene.kubelet.holders = [LEAK]
    told = write_audit(scene.audit(tmp_path))

    assert (told["node"], told["verdict"], told["gaps"]) == ("n0", "findings", [])
    assert told["findings"][0].keys() == {"kind", "subject", "what", "remedy"}
    assert told["findings"][0]["kind"] == "KubeletLeak"
