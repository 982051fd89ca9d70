import asyncio
import json
import threading

import pytest

import builders
from slicewise.kube.local_pods import LocalPod
from slicewise.kubelet.dra_messages import ClaimRef
from slicewise.kubelet.errors import DeniedError
from slicewise.model import Container, MiB, Percent, Slice
from slicewise.model.claim import Claim, ClaimedDevice
from slicewise.model.grants import PodGrants
from slicewise.nodeagent.claims.claim_handler import ClaimPreparer
from slicewise.nodeagent.claims.claim_store import ClaimStore
from slicewise.nodeagent.files import FileError
from slicewise.nodeagent.limits.vcuda import VcudaFolders
from slicewise.nodeagent.plugin.edits import EditsBuilder, HostDevices
from slicewise.nodeagent.plugin.vendor_cdi import VendorSpecs

NODE = builders.node(gpus=2)


def device(request="gpu", gpu=0, cores=30, memory=4096, **more):
    name = f"gpu-n0-{gpu}"
    return ClaimedDevice(request, "n0", name, Percent(cores), MiB(memory), **more)


def claim(uid="u1", *devices):
    return Claim(uid, "ml", f"claim-{uid}", devices or (device(),))


class Scene:
    """One node's preparer over files, with the claims that the API server has."""

    def __init__(self, folder):
        self.folder = folder
        self.claims = {}
        self.others = ()
        self.reads = 0
        self.restart()

    def restart(self):
        self.store = ClaimStore(self.folder / "claims", self.folder / "cdi")
        host = HostDevices(self.folder / "dev", require_gpus=False)
        builder = EditsBuilder(host, VendorSpecs(()), VcudaFolders(self.folder / "vm"))
        self.preparer = ClaimPreparer(
            self.store, builder, lambda: NODE, find=self.find, others=lambda: self.others
        )

    async def find(self, namespace, name):
        self.reads += 1
        return self.claims.get((namespace, name))

    def prepare(self, asked):
        self.claims.setdefault(("ml", asked.name), asked)
        return asyncio.run(self.preparer.prepare(ClaimRef("ml", asked.uid, asked.name)))

    def unprepare(self, asked):
        asyncio.run(self.preparer.unprepare(ClaimRef("ml", asked.uid, asked.name)))

    def spec(self, uid):
        return json.loads((self.folder / "cdi" / f"slicewise-claim-{uid}.json").read_text())

    def variables(self, uid):
        edits = [each["containerEdits"]["env"] for each in self.spec(uid)["devices"]]
        return [dict(entry.split("=", 1) for entry in env) for env in edits]


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_prepared_claim_names_one_cdi_device_for_each_request(scene):
    asked = claim("u1", device("a", 0, share="s1"), device("b", 1, 100, 40960))

    answers = scene.prepare(asked)

    assert [(each.requests, each.cdi, each.share) for each in answers] == [
        (("a",), ("slicewise.io/claim=u1-a",), "s1"),
        (("b",), ("slicewise.io/claim=u1-b",), ""),
    ]
    assert [each["name"] for each in scene.spec("u1")["devices"]] == ["u1-a", "u1-b"]


def test_no_two_requests_write_the_same_variable_with_another_value(scene):
    scene.prepare(claim("u1", device("a"), device("b", 0, 10, 1024)))

    first, second = scene.variables("u1")
    shared = first.keys() & second.keys()

    assert {key: first[key] for key in shared} == {"NVIDIA_VISIBLE_DEVICES": "void"}
    shares = [value for env in (first, second) for key, value in env.items() if key not in shared]
    assert shares == ["GPU-n0-0:30:4096", "GPU-n0-0:10:1024"]


def test_shares_of_one_request_on_one_gpu_are_added_up(scene):
    scene.prepare(claim("u1", device(), device(cores=20, memory=1024)))

    (env,) = scene.variables("u1")
    assert "GPU-n0-0:50:5120" in env.values()


def test_same_claim_gets_the_same_answer_without_being_read_again(scene):
    first = scene.prepare(claim())
    scene.restart()

    assert scene.prepare(claim()) == first
    assert scene.reads == 1


def test_spec_that_was_lost_is_written_again(scene):
    scene.prepare(claim())
    before = scene.spec("u1")
    (scene.folder / "cdi" / "slicewise-claim-u1.json").unlink()

    scene.prepare(claim())

    assert scene.spec("u1") == before


def test_claims_are_refused_beyond_the_size_of_a_gpu_with_the_numbers(scene):
    for uid in ("u1", "u2", "u3"):
        scene.prepare(claim(uid))

    with pytest.raises(DeniedError, match=r"needs 30 percent, .* hold 90 of 100 percent"):
        scene.prepare(claim("u4"))

    scene.unprepare(claim("u2"))
    assert scene.prepare(claim("u4"))


def test_pods_without_claims_count_as_well(scene):
    held = {"main": (Slice(0, Percent(80), MiB(1024)),)}
    scene.others = (PodGrants("p1", "ml/classic", (Container("main"),), started=held),)

    with pytest.raises(DeniedError, match="ml/classic holds 80 of 100 percent"):
        scene.prepare(claim())


def test_claim_counts_from_the_moment_it_is_admitted_until_it_is_prepared_or_refused(
    scene, monkeypatch
):
    counted = []

    def count():
        (held,) = (each.held for each in scene.preparer.grants())
        counted.append(held)

    put = scene.store.put

    def put_after_a_pod_has_started(*given):
        count()
        put(*given)

    monkeypatch.setattr(scene.store, "put", put_after_a_pod_has_started)
    scene.prepare(claim())
    count()

    assert counted == [(Slice(0, Percent(30), MiB(4096)),)] * 2


def test_claim_is_not_left_prepared_when_the_kubelet_gives_up_and_takes_it_back(scene, monkeypatch):
    writing, free = threading.Event(), threading.Event()
    put = scene.store.put

    def put_slowly(*given):
        writing.set()
        free.wait(5)
        put(*given)

    monkeypatch.setattr(scene.store, "put", put_slowly)
    scene.claims["ml", "claim-u1"] = claim()
    ref = ClaimRef("ml", "u1", "claim-u1")

    async def give_up():
        preparing = asyncio.create_task(scene.preparer.prepare(ref))
        await asyncio.to_thread(writing.wait, 5)
        preparing.cancel()
        taking_back = asyncio.create_task(scene.preparer.unprepare(ref))
        await asyncio.wait([taking_back], timeout=0.2)
        free.set()
        await asyncio.gather(preparing, taking_back, return_exceptions=True)

    # It returns once all threads have ended.
    asyncio.run(give_up())

    assert list(scene.preparer.grants()) == []
    assert not list((scene.folder / "cdi").iterdir())


def test_claim_whose_files_cannot_be_written_holds_nothing(scene, monkeypatch):
    def fail(*_):
        raise FileError("no space left")

    monkeypatch.setattr(scene.store, "put", fail)
    with pytest.raises(FileError):
        scene.prepare(claim())

    assert list(scene.preparer.grants()) == []


def test_access_for_monitoring_holds_nothing(scene):
    scene.prepare(claim("u1", device(cores=100, memory=40960)))

    assert scene.prepare(claim("u2", device(cores=100, memory=40960, admin=True)))


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        pytest.param((device(gpu=7),), "expected a GPU of node n0", id="no-such-gpu"),
        pytest.param(
            (ClaimedDevice("gpu", "n9", "gpu-n0-0", Percent(1), MiB(1)),),
            "expected a GPU of node n0",
            id="another-node",
        ),
        pytest.param(
            (device(pending=("slicewise.io/granted",)),),
            "condition slicewise.io/granted",
            id="not-granted",
        ),
    ],
)
def test_device_that_is_not_this_claims_to_have_is_refused(scene, devices, words):
    with pytest.raises(DeniedError, match=words):
        scene.prepare(claim("u1", *devices))


def test_claim_of_the_same_name_with_another_uid_is_refused(scene):
    scene.claims["ml", "claim-u1"] = claim("other")

    with pytest.raises(DeniedError, match="nothing is allocated to it"):
        scene.prepare(claim())


def test_unprepare_leaves_nothing_and_may_be_repeated(scene):
    scene.prepare(claim())
    scene.unprepare(claim())
    scene.unprepare(claim())

    assert not list((scene.folder / "cdi").iterdir())
    assert not list((scene.folder / "claims").iterdir())


def test_notes_and_specs_that_a_dead_agent_left_half_written_are_made_good(scene):
    scene.prepare(claim("u1"))
    scene.prepare(claim("u2", device(gpu=1)))
    (scene.folder / "claims" / "u1.json").write_text("{")
    (scene.folder / "cdi" / "slicewise-claim-u2.json").unlink()

    scene.restart()
    scene.store.repair()

    assert [each.uid for each in scene.store.claims()] == ["u2"]
    assert [path.name for path in (scene.folder / "cdi").iterdir()] == ["slicewise-claim-u2.json"]


def test_containers_hold_the_requests_they_use_and_all_where_they_name_none(scene):
    made = claim("u1", device("a"), device("b", gpu=1), device("b", cores=10, memory=512))
    scene.prepare(made)
    uses = (("one", "claim-u1", "a"), ("two", "claim-u1", ""), ("two", "other", ""))
    pod = LocalPod(builders.pod(namespace="ml"), uses=uses)

    (held,) = scene.preparer.claimed(pod)

    assert held.charges == (Slice(0, 40, 4608), Slice(1, 30, 4096))
    assert held.containers["one"] == (Slice(0, 30, 4096),)
    assert len(held.containers["two"]) == 3
    elsewhere = LocalPod(builders.pod(namespace="else"), uses=uses)
    assert scene.preparer.claimed(elsewhere) == ()
