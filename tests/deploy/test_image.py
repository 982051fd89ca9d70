"""The image's recipe: equal input gives equal bytes, and nothing is in it that should not be."""

import gzip
import hashlib
import io
import json
import stat
import sys
import tarfile
import zipfile

import pytest


@pytest.fixture(scope="module")
def image(supply):
    import build_image  # noqa: PLC0415
    from image import oci, recipe, rootfs, wheels  # noqa: PLC0415

    class Image:
        pass

    found = Image()
    found.oci, found.recipe, found.rootfs, found.wheels = oci, recipe, rootfs, wheels
    found.build = build_image
    return found


def fill(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    (root / "tmp").mkdir()
    (root / "link").symlink_to("a/b")
    return root


def write(image, root, target):
    layers = [image.oci.pack_layer(root)]
    configuration = image.recipe.write_configuration()
    return image.oci.write_archive(
        target,
        layers,
        architecture="arm64",
        configuration=configuration,
        reference="slicewise:0.1.0",
    )


def test_equal_files_give_equal_bytes_whoever_made_them_and_when(image, tmp_path):
    first = fill(tmp_path / "first", "a/b", "c")
    second = fill(tmp_path / "second", "c", "a/b")
    (second / "c").chmod(0o640)

    digests = {write(image, root, tmp_path / f"{root.name}.tar") for root in (first, second)}

    assert len(digests) == 1
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()


def test_every_blob_of_the_archive_is_named_by_its_digest(image, tmp_path):
    digest = write(image, fill(tmp_path / "root", "a/b"), tmp_path / "image.tar")

    with tarfile.open(tmp_path / "image.tar") as archive:
        files = {each.name: archive.extractfile(each).read() for each in archive}

    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"]["io.containerd.image.name"] == "docker.io/library/slicewise:0.1.0"
    for name, content in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    manifest = json.loads(files[f"blobs/sha256/{digest.removeprefix('sha256:')}"])
    config = json.loads(files[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
    (layer,) = (files[f"blobs/sha256/{each['digest'][7:]}"] for each in manifest["layers"])
    unpacked = hashlib.sha256(gzip.decompress(layer)).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{unpacked}"]
    assert config["config"]["User"] == "65532:65532"
    assert config["architecture"] == "arm64"


def test_layer_belongs_to_root_and_nothing_in_it_raises_rights(image, tmp_path):
    root = fill(tmp_path / "root", "a/b")
    (root / "a" / "b").chmod(0o4755)

    layer = image.oci.pack_layer(root)

    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer.compressed))) as archive:
        entries = {each.name: each for each in archive}
    assert entries["a/b"].mode == 0o755
    assert entries["tmp"].mode == 0o1777
    assert entries["link"].linkname == "a/b"
    assert {(each.uid, each.gid, each.mtime) for each in entries.values()} == {(0, 0, 0)}
    assert not entries["a/b"].mode & stat.S_ISUID


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("usr/share/doc/libc6/copyright", True),
        ("usr/lib/x86_64-linux-gnu/gconv/UTF-7.so", True),
        ("usr/local/lib/python3.11/dist-packages/numpy/linalg/tests/test_linalg.py", True),
        ("usr/local/lib/python3.11/dist-packages/numpy/__init__.pyi", True),
        ("usr/local/lib/python3.11/dist-packages/numpy/linalg/linalg.py", False),
        ("usr/share/zoneinfo/UTC", False),
        ("usr/bin/python3.11", False),
    ],
)
def test_recipe_leaves_out_what_nobody_runs(image, name, left_out):
    assert image.rootfs.is_left_out(name) is left_out


def test_recipe_has_no_shell_and_no_package_manager(image):
    assert not {"dash", "bash", "busybox", "apt", "dpkg", "perl-base"} & set(image.recipe.PACKAGES)


def test_wheels_are_those_of_the_pins_alone(image):
    pins = image.wheels.find_pins()
    lines = image.wheels.write_requirements(pins).splitlines()

    assert {"numpy", "grpcio", "httptools"} <= {pin.name.lower() for pin in pins}
    assert not {"pytest", "mypy", "slicewise"} & {pin.name.lower() for pin in pins}
    assert all("--hash=sha256:" in line for line in lines)


def write_wheel(path, *names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


def test_wheel_is_unpacked_without_its_scripts(image, tmp_path):
    wheel = write_wheel(
        tmp_path / "a.whl", "a/__init__.py", "a-1.data/scripts/run", "a-1.data/purelib/b.py"
    )
    image.wheels.unpack_wheel(wheel, tmp_path / "site")

    found = {path.name for path in (tmp_path / "site").rglob("*") if path.is_file()}
    assert found == {"__init__.py", "b.py"}


def test_wheel_that_leads_out_of_its_folder_is_refused(image, tmp_path):
    wheel = write_wheel(tmp_path / "a.whl", "../outside.py")

    with pytest.raises(ValueError, match="leads out of the folder"):
        image.wheels.unpack_wheel(wheel, tmp_path / "site")


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image has Python 3.11")
def test_bytecode_says_nothing_of_where_it_was_made(image, tmp_path):
    made = []
    for name in ("here", "there"):
        module = tmp_path / name / "usr" / "m.py"
        module.parent.mkdir(parents=True)
        module.write_text("def f():\n    return 1\n")
        image.rootfs.compile_modules([module], tmp_path / name)
        (compiled,) = module.parent.rglob("*.pyc")
        made.append(compiled.read_bytes())

    assert made[0] == made[1]
    assert str(tmp_path).encode() not in made[0]


def test_list_of_parts_has_every_package_with_the_hash_of_its_file(image, tmp_path):
    from image.debian import DebianPackage  # noqa: PLC0415

    package = DebianPackage("libc6", "2.36-9", "amd64", "aa", tmp_path)
    wheel = image.wheels.Wheel("numpy", "2.1", "bb", tmp_path)

    found = image.build.write_sbom((package,), (wheel,), "sha256:cc")

    assert [(each["purl"], each["hashes"][0]["content"]) for each in found["components"]] == [
        ("pkg:deb/debian/libc6@2.36-9", "aa"),
        ("pkg:pypi/numpy@2.1", "bb"),
    ]
    assert found["metadata"]["component"]["version"] == "sha256:cc"
