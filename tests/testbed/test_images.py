import hashlib
import io
import json
import tarfile

from slicewise_testbed.images import Image, write_images


def test_archive_names_each_image_and_the_digest_of_its_layer(tmp_path):
    layer = io.BytesIO()
    tarfile.open(fileobj=layer, mode="w").close()
    image = Image("docker.io/library/one:local", layer.getvalue(), ("sh",), {"PATH": "/bin"})
    twin = Image("docker.io/library/two:local", layer.getvalue(), ("true",))

    write_images(tmp_path / "images.tar", [image, twin])

    with tarfile.open(tmp_path / "images.tar") as archive:
        manifest = json.load(archive.extractfile("manifest.json"))
        configs = [json.load(archive.extractfile(entry["Config"])) for entry in manifest]
        stored = archive.extractfile(manifest[0]["Layers"][0]).read()
    digest = f"sha256:{hashlib.sha256(stored).hexdigest()}"
    assert [entry["RepoTags"] for entry in manifest] == [[image.reference], [twin.reference]]
    assert [config["rootfs"]["diff_ids"] for config in configs] == [[digest], [digest]]
    assert configs[0]["config"] == {"Cmd": ["sh"], "Env": ["PATH=/bin"]}
