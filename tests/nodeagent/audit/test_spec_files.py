import pytest

from nodeagent import scenes
from slicewise.diagnose.evidence import SpecFile
from slicewise.nodeagent.audit.auditor import read_spec_files
from slicewise.nodeagent.node_pods import NodePods
from slicewise.nodeagent.plugin.cdi import CdiEdits, CdiSpecs, SpecOwner

# The second GPU's device node has another number than its index.
PODS = NodePods()
PODS.set_gpus([scenes.device(0), scenes.device(1, minor=5)])
TITLE = SpecOwner("u0", "ml/train", "c0", "slicewise.io/cores")


def nodes(*paths: str) -> tuple[dict[str, str], ...]:
    return tuple({"path": path} for path in paths)


@pytest.fixture
def specs(tmp_path):
    return CdiSpecs(tmp_path / "cdi")


@pytest.mark.parametrize(
    ("edits", "gpus"),
    [
        pytest.param(CdiEdits(device_nodes=nodes("/dev/nvidia5")), {"GPU-1"}, id="by-minor"),
        pytest.param(CdiEdits(env=("NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-1",)), {"GPU-0", "GPU-1"}),
        pytest.param(
            CdiEdits(env=("NVIDIA_VISIBLE_DEVICES=GPU-1",), device_nodes=nodes("/dev/nvidia5")),
            {"GPU-1"},
            id="both-agree",
        ),
        pytest.param(
            CdiEdits(env=("NVIDIA_VISIBLE_DEVICES=GPU-1",), device_nodes=nodes("/dev/nvidia0")),
            {"GPU-0", "GPU-1"},
            id="both-disagree",
        ),
        pytest.param(
            CdiEdits(device_nodes=({"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia5"},)),
            {"GPU-1"},
            id="node-from-elsewhere",
        ),
        pytest.param(CdiEdits(device_nodes=nodes("/dev/nvidia9")), {"/dev/nvidia9"}, id="no-such"),
        pytest.param(CdiEdits(device_nodes=nodes("/dev/nvidiactl", "/dev/nvidia-uvm")), None),
        pytest.param(CdiEdits(env=("NVIDIA_VISIBLE_DEVICES=none", "A=B")), None, id="none"),
    ],
)
def test_the_gpus_of_a_spec_are_read_off_its_edits(specs, edits, gpus):
    specs.write("a", TITLE, edits)

    assert read_spec_files(specs, PODS) == [
        SpecFile("a", "u0", "c0", None if gpus is None else frozenset(gpus))
    ]


def test_a_truncated_spec_is_told_and_hides_no_other(specs):
    specs.write("a", TITLE, CdiEdits())
    specs.write("b", TITLE, CdiEdits())
    path = specs.folder / "slicewise-a.json"
    path.write_bytes(path.read_bytes()[:40])
    broken, well = read_spec_files(specs, PODS)

    assert broken.trouble
    assert (well.name, well.trouble) == ("b", None)


def test_a_folder_that_is_not_there_holds_nothing(specs):
    assert read_spec_files(specs, PODS) == []
