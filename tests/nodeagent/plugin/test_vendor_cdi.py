import pytest
import yaml

import builders
from slicewise.nodeagent.plugin.vendor_cdi import VendorSpecs

GPUS = [builders.gpu(0), builders.gpu(1)]


def spec(names=("GPU-0", "GPU-1"), **facts):
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{at}"}]}}
        for at, name in enumerate(names)
    ]
    common = {
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "mounts": [{"hostPath": "/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1"}],
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk"}],
    }
    document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    return {**document, "containerEdits": common, **facts}


def write(folder, document, name="nvidia.yaml"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(yaml.safe_dump(document))
    return VendorSpecs((folder,))


@pytest.mark.parametrize("names", [("GPU-0", "GPU-1"), ("0", "1")], ids=["by-uuid", "by-index"])
def test_edits_are_the_common_ones_and_those_of_the_chosen_gpus(tmp_path, names):
    edits = write(tmp_path, spec(names)).edits(GPUS[1:])

    assert [each["path"] for each in edits.device_nodes] == ["/dev/nvidia1"]
    assert len(edits.mounts) == len(edits.hooks) == 1
    assert edits.version == "0.6.0"


def test_newer_version_of_the_spec_is_kept(tmp_path):
    assert write(tmp_path, spec(cdiVersion="0.10.0")).edits(GPUS).version == "0.10.0"


@pytest.mark.parametrize(
    "document",
    [spec(("GPU-0",)), spec(kind="other.com/gpu"), {"kind": "nvidia.com/gpu"}, "text", None],
    ids=["one-gpu-missing", "another-vendor", "no-devices", "no-mapping", "empty"],
)
def test_spec_that_does_not_describe_every_gpu_is_not_used(tmp_path, document):
    assert write(tmp_path, document).edits(GPUS) is None


def test_broken_spec_is_reported_and_not_used(tmp_path, caplog):
    (tmp_path / "nvidia.yaml").write_text("kind: [unclosed")

    assert VendorSpecs((tmp_path,)).edits(GPUS) is None
    assert "NVIDIA's spec unreadable" in caplog.text


def test_spec_is_read_again_when_it_changes_and_forgotten_when_it_goes(tmp_path):
    specs = write(tmp_path, spec(("GPU-0",)))
    assert specs.edits(GPUS) is None

    write(tmp_path, spec())
    assert specs.edits(GPUS) is not None

    (tmp_path / "nvidia.yaml").unlink()
    assert specs.edits(GPUS) is None


def test_folder_that_is_not_there_describes_nothing(tmp_path):
    assert VendorSpecs((tmp_path / "none",)).edits(GPUS) is None
