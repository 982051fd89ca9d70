import pytest

from nodeagent import scenes
from slicewise.nodeagent.cdi import Edits, Specs, Title
from slicewise.nodeagent.evidence import SpecFile
from slicewise.nodeagent.specfiles import read_spec_files

# The second GPU's device node has another number than its index.
GPUS = [scenes.device(0), scenes.device(1, minor=5)]
TITLE = Title("u0", "ml/train", "c0", "slicewise.io/cores")


def nodes(*paths: str) -> tuple[dict[str, str], ...]:
    return tuple({"path": path} for path in paths)


@pytest.fixture
def specs(tmp_path):
    return Specs(tmp_path / "cdi")


@pytest.mark.parametrize(
    ("edits", "gpus"),
    [
        pytest.param(Edits(device_nodes=nodes("/dev/nvidia5")), {"GPU-1"}, id="by-minor"),
        pytest.param(Edits(env=("NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-1",)), {"GPU-0", "GPU-1"}),
        pytest.param(
            Edits(env=("NVIDIA_VISIBLE_DEVICES=GPU-1",), device_nodes=nodes("/dev/nvidia5")),
            {"GPU-1"},
            id="both-agree",
        ),
        pytest.param(
            Edits(env=("NVIDIA_VISIBLE_DEVICES=GPU-1",), device_nodes=nodes("/dev/nvidia0")),
            {"GPU-0", "GPU-1"},
            id="both-disagree",
        ),
        pytest.param(
            Edits(device_nodes=({"path": "/dev/nvidia0", "hostPath": "/host/dev/nvidia5"},)),
            {"GPU-1"},
            id="node-from-elsewhere",
        ),
        pytest.param(Edits(device_nodes=nodes("/dev/nvidia9")), {"/dev/nvidia9"}, id="no-such"),
        pytest.param(Edits(device_nodes=nodes("/dev/nvidiactl", "/dev/nvidia-uvm")), None),
        pytest.param(Edits(env=("NVIDIA_VISIBLE_DEVICES=none", "A=B")), None, id="none"),
    ],
)
def test_the_gpus_of_a_spec_are_read_off_its_edits(specs, edits, gpus):
    specs.write("a", TITLE, edits)

    assert list(read_spec_files(specs, GPUS)) == [
        SpecFile("a", "u0", "c0", None if gpus is None else frozenset(gpus))
    ]


def test_a_truncated_spec_is_told_and_hides_no_other(specs):
    specs.write("a", TITLE, Edits())
    specs.write("b", TITLE, Edits())
    path = specs.folder / "slicewise-a.json"
    path.write_bytes(path.read_bytes()[:40])
    broken, well = read_spec_files(specs, GPUS)

    assert broken.trouble
    assert (well.name, well.trouble) == ("b", None)


def test_a_folder_that_is_not_there_holds_nothing(specs):
    assert list(read_spec_files(specs, GPUS)) == []
