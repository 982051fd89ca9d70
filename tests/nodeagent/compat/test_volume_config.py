import json

import pytest

from slicewise.nodeagent.compat.volume_config import (
    DEFAULT_VOLUMES,
    VolumeConfigError,
    VolumeParts,
    load_extra_devices,
    load_volume_config,
)


def write(tmp_path, document):
    path = tmp_path / "file.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_volumes_are_read_as_gpu_managers_image_has_them(tmp_path):
    parts = {"binaries": ["nvidia-smi"], "libraries": ["libcuda.so", "libnvidia-ml.so"]}
    row = {"name": "nvidia", "base": "/vdriver", "mode": "ro", "components": parts}

    config = load_volume_config(write(tmp_path, {"volume": [row]}))

    assert config.base == "/vdriver"
    assert config.volumes == (VolumeParts("nvidia", ("nvidia-smi",), ("libcuda", "libnvidia-ml")),)


def test_volumes_of_the_default_are_those_that_containers_mount():
    assert [each.name for each in DEFAULT_VOLUMES] == ["nvidia", "origin"]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a JSON object"),
        ({}, "expected a list of volumes"),
        ({"volume": [{"name": "../x", "components": {}}]}, "expected a name like nvidia"),
        ({"volume": [{"name": "a", "components": {"binaries": 1}}]}, "a.components.binaries"),
        ({"volume": [{"name": "a", "base": "/a"}, {"name": "b", "base": "/b"}]}, "one folder"),
    ],
)
def test_volumes_that_cannot_be_meant_are_named(tmp_path, document, words):
    with pytest.raises(VolumeConfigError, match=words):
        load_volume_config(write(tmp_path, document))


def test_devices_for_every_container_are_read(tmp_path):
    path = write(tmp_path, {"default": {"devices": ["/dev/fuse", "/dev/infiniband/uverbs0"]}})

    assert load_extra_devices(path) == ("/dev/fuse", "/dev/infiniband/uverbs0")


@pytest.mark.parametrize(
    "devices", ["/dev/fuse", ["/etc/shadow"], ["/dev/../etc/shadow"], [1], None]
)
def test_devices_outside_dev_are_refused(tmp_path, devices):
    with pytest.raises(VolumeConfigError, match=r"file\.json"):
        load_extra_devices(write(tmp_path, {"default": {"devices": devices}}))


def test_missing_file_is_named(tmp_path):
    with pytest.raises(VolumeConfigError, match=r"cannot read .*none"):
        load_volume_config(tmp_path / "none")
