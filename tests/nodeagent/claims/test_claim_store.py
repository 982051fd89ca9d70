"""Prepared claims on disk, while several threads work on them."""

import threading

import pytest

from slicewise.model import MiB, Percent
from slicewise.model.claim import Claim, ClaimedDevice
from slicewise.nodeagent.claims import claim_store
from slicewise.nodeagent.claims.claim_store import ClaimStore
from slicewise.nodeagent.files import FileError
from slicewise.nodeagent.plugin.cdi import CdiEdits


def claim(uid):
    devices = (ClaimedDevice("gpu", "n0", "gpu-n0-0", Percent(30), MiB(4096)),)
    return Claim(uid, "ml", f"claim-{uid}", devices)


def put(store, uid):
    store.put(claim(uid), {"gpu": CdiEdits(env=("A=1",))})


def specs(folder):
    return sorted(path.name for path in (folder / "cdi").iterdir())


@pytest.mark.parametrize("content", [b"{", b'{"uid": "\xff"}', b'{"x":' + b"[" * 100_000])
def test_note_that_cannot_be_read_costs_no_other(tmp_path, content):
    put(ClaimStore(tmp_path / "claims", tmp_path / "cdi"), "u1")
    (tmp_path / "claims" / "u2.json").write_bytes(content)

    assert [each.uid for each in ClaimStore(tmp_path / "claims", tmp_path / "cdi").claims()] == [
        "u1"
    ]


def test_repair_leaves_the_spec_of_a_claim_that_is_just_being_prepared(tmp_path, monkeypatch):
    store = ClaimStore(tmp_path / "claims", tmp_path / "cdi")
    repair = threading.Thread(target=store.repair)
    write = claim_store.write_whole

    def repair_before_the_note(path, content):
        if path.parent == tmp_path / "claims":
            repair.start()
            repair.join(0.2)
        write(path, content)

    monkeypatch.setattr(claim_store, "write_whole", repair_before_the_note)
    put(store, "u1")
    repair.join()

    assert specs(tmp_path) == ["slicewise-claim-u1.json"]


def test_claims_may_be_prepared_while_others_are_repaired(tmp_path, monkeypatch):
    store = ClaimStore(tmp_path / "claims", tmp_path / "cdi")
    put(store, "u1")
    put(store, "u2")
    (tmp_path / "cdi" / "slicewise-claim-u1.json").unlink()
    more = threading.Thread(target=put, args=(store, "u3"))
    write = claim_store.write_whole

    def prepare_meanwhile(path, content):
        if path.name == "slicewise-claim-u1.json":
            more.start()
            more.join(0.2)
        write(path, content)

    monkeypatch.setattr(claim_store, "write_whole", prepare_meanwhile)
    store.repair()
    more.join()

    assert specs(tmp_path) == [f"slicewise-claim-u{at}.json" for at in (1, 2, 3)]


def test_claims_may_be_prepared_while_all_of_them_are_counted(tmp_path):
    store = ClaimStore(tmp_path / "claims", tmp_path / "cdi")
    put(store, "u1")
    counted = []
    for each in store.claims():
        put(store, "u2")
        counted.append(each.uid)

    assert counted == ["u1"]


def test_spec_that_cannot_be_written_keeps_no_other_from_being_repaired(tmp_path, monkeypatch):
    store = ClaimStore(tmp_path / "claims", tmp_path / "cdi")
    put(store, "u1")
    put(store, "u2")
    for path in (tmp_path / "cdi").iterdir():
        path.unlink()
    write = claim_store.write_whole

    def write_on_a_full_disk(path, content):
        if "u1" in path.name:
            raise FileError(f"cannot write {path}: No space left on device")
        write(path, content)

    monkeypatch.setattr(claim_store, "write_whole", write_on_a_full_disk)
    store.repair()

    assert specs(tmp_path) == ["slicewise-claim-u2.json"]
