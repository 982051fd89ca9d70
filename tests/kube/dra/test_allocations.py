import asyncio
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slicewise.kube.client import MERGE_PATCH
from slicewise.kube.dra.allocations import AllocationWriter, write_allocation
from slicewise.kube.dra.claim_writes import STRATEGIC_PATCH, ClaimWrites
from slicewise.kube.dra.claims import PROTECTION, ResourceClaimBody, read_claim
from slicewise.kube.errors import RefusedError
from slicewise.kube.outcomes import WriteStatus
from slicewise.model import MiB, Percent
from slicewise.model.claim import (
    DRIVER,
    Claim,
    ClaimedDevice,
    ClaimRequest,
    ClaimSpec,
    DeviceToleration,
)

NOW = datetime(2026, 11, 16, 3, 36, tzinfo=UTC)
TOLERATED = DeviceToleration("slicewise.io/cordoned", "Exists", effect="NoSchedule", seconds=3)
SPEC = ClaimSpec((ClaimRequest("gpu", DRIVER, tolerations=(TOLERATED,)),))
DEVICE = ClaimedDevice("gpu", "n0", "gpu-0", Percent(30), MiB(4096), "s1")
CLAIM = Claim("u1", "ml", "c", (DEVICE,), version=7, spec=SPEC)


class FakeServer:
    """Keeps one claim, and refuses writes to another version of it."""

    fence = None

    def __init__(self):
        meta = {"name": "c", "namespace": "ml", "uid": "u1", "resourceVersion": "7"}
        self.body = {"metadata": meta, "spec": {}, "status": {}}
        self.calls = []

    async def send(self, call, body, *, content_type, **_):
        self.calls.append((call.resource, content_type))
        meta = self.body["metadata"]
        if body["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise RefusedError(409, "Conflict", "changed")
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        meta["finalizers"] = meta.get("finalizers", []) + body["metadata"].get("finalizers", [])
        self.body["status"] |= body.get("status", {})
        return msgspec.json.encode(self.body)

    async def read(self, call):
        return msgspec.json.encode(self.body)


def write(server, claim=CLAIM):
    async def work():
        return await AllocationWriter(ClaimWrites(server), lambda: NOW).write(claim)

    return asyncio.run(work())


def test_finalizer_comes_first_and_the_allocation_is_for_the_version_after_it():
    server = FakeServer()

    outcome = write(server)

    assert outcome.status is WriteStatus.DONE
    assert server.calls == [
        ("resourceclaims", STRATEGIC_PATCH),
        ("resourceclaims/status", MERGE_PATCH),
    ]
    assert server.body["metadata"]["finalizers"] == [PROTECTION]
    assert outcome.claim.key == CLAIM.key
    assert outcome.claim.version == 9


def test_protected_claim_takes_one_write():
    server = FakeServer()

    write(server, Claim("u1", "ml", "c", (DEVICE,), version=7, spec=SPEC, protected=True))

    assert [resource for resource, _ in server.calls] == ["resourceclaims/status"]


def test_claim_that_has_changed_is_a_conflict_and_nothing_is_allocated():
    server = FakeServer()
    server.body["metadata"]["resourceVersion"] = "8"

    outcome = write(server)

    assert outcome.status is WriteStatus.CONFLICT
    assert server.body["status"] == {}


def test_tolerations_of_the_request_are_kept_with_the_device():
    (result,) = write_allocation(CLAIM, NOW)["status"]["allocation"]["devices"]["results"]

    assert result["tolerations"] == [
        {
            "key": "slicewise.io/cordoned",
            "operator": "Exists",
            "effect": "NoSchedule",
            "tolerationSeconds": 3,
        }
    ]


DEVICES = st.builds(
    ClaimedDevice,
    request=st.sampled_from(["a", "b"]),
    pool=st.just("n0"),
    device=st.sampled_from(["gpu-0", "gpu-1"]),
    cores=st.integers(0, 100).map(Percent),
    memory=st.integers(1, 1 << 20).map(MiB),
    share=st.uuids().map(str),
)


@given(st.lists(DEVICES, min_size=1, max_size=4).map(tuple))
def test_what_is_written_is_read_back_as_the_same_devices_and_counts_at_once(devices):
    claim = Claim("u1", "ml", "c", devices, version=7)
    document = write_allocation(claim, NOW)
    meta = {"name": "c", "namespace": "ml", "uid": "u1", "resourceVersion": "8"}
    body = msgspec.json.encode({"metadata": meta, "status": document["status"]})

    read = read_claim(msgspec.json.decode(body, type=ResourceClaimBody))

    assert read.key == claim.key
    assert not read.pending
    assert not read.refused
    assert read.spec is None
