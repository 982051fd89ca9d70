import json

from slicewise.nodeagent.plugin.cdi import CdiEdits, CdiSpecs, SpecOwner, full_name, name_units

TITLE = SpecOwner("u0", "ml/train", "c0", "nvidia.com/vcuda-core", ("elastic-gpu-1-0",))
EDITS = CdiEdits(env=("A=1",), device_nodes=({"path": "/dev/nvidia0"},))


def test_name_depends_on_the_resource_and_the_set_of_ids_alone():
    name = name_units("a/b", ["2", "1"])

    assert name == name_units("a/b", ("1", "2"))
    assert name != name_units("a/c", ["1", "2"])
    assert name != name_units("a/b", ["12"])
    assert full_name(name) == f"slicewise.io/share={name}"


def test_spec_reads_back_with_its_owner(tmp_path):
    specs = CdiSpecs(tmp_path / "cdi")
    specs.write("abc", TITLE, EDITS)

    assert specs.read() == {"abc": TITLE}
    assert specs.edits("abc") == {"env": ["A=1"], "deviceNodes": [{"path": "/dev/nvidia0"}]}


def test_spec_is_one_a_runtime_accepts(tmp_path):
    CdiSpecs(tmp_path).write("abc", TITLE, EDITS)
    document = json.loads((tmp_path / "slicewise-abc.json").read_text())

    assert document["cdiVersion"] == "0.6.0"
    assert document["kind"] == "slicewise.io/share"
    assert [each["name"] for each in document["devices"]] == ["abc"]


def test_truncated_spec_is_none_and_the_others_are_read(tmp_path, caplog):
    specs = CdiSpecs(tmp_path)
    specs.write("good", TITLE, EDITS)
    whole = (tmp_path / "slicewise-good.json").read_bytes()
    for at, name in ((0, "empty"), (30, "cut"), (len(whole) - 1, "late")):
        (tmp_path / f"slicewise-{name}.json").write_bytes(whole[:at])
    (tmp_path / "slicewise-other.json").write_text('{"annotations": []}')

    assert specs.read() == {"cut": None, "empty": None, "good": TITLE, "late": None, "other": None}
    assert caplog.text.count("spec unreadable") == 4


def test_specs_of_others_are_not_ours(tmp_path):
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu")
    (tmp_path / "other.json").write_text("{}")

    assert CdiSpecs(tmp_path).read() == {}


def test_half_written_files_are_swept(tmp_path):
    specs = CdiSpecs(tmp_path)
    specs.write("abc", TITLE, EDITS)
    (tmp_path / ".scratch-slicewise-x.json-1234").touch()
    specs.sweep()

    assert [path.name for path in tmp_path.iterdir()] == ["slicewise-abc.json"]
