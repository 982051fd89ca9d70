import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

import builders
from slicewise.kube.dra.claim_writes import ClaimWrites
from slicewise.kube.dra.verdicts import ClaimVerdict, VerdictWriter, write_verdict
from slicewise.kube.errors import FencedError, LostError, RefusedError
from slicewise.kube.outcomes import WriteStatus
from slicewise.model.claim import Claim

NOW = datetime(2026, 11, 16, 3, 36, tzinfo=UTC)
CLAIM = Claim("u1", "ml", "gpu", (builders.claimed(builders.gpu(), share="s1"),), version=7)
REFUSAL = ClaimVerdict(False, "InsufficientGpuCores", "no room")


class FakeServer:
    """Answers one write, and reads of the claim."""

    fence = None

    def __init__(self, answer, uid="u1", version="9"):
        self.answer = answer
        self.body = {
            "metadata": {"name": "gpu", "namespace": "ml", "uid": uid, "resourceVersion": version}
        }
        self.call = None

    async def send(self, call, body, **_):
        self.call = call
        if isinstance(self.answer, Exception):
            raise self.answer
        return msgspec.json.encode(self.body)

    async def read(self, call):
        return msgspec.json.encode(self.body)


def write(server):
    async def work():
        writes = ClaimWrites(server, clock=lambda: 0.0)
        return await VerdictWriter(writes).write(CLAIM, REFUSAL), writes

    return asyncio.run(work())


def test_verdict_names_the_version_that_was_judged_and_our_device_alone():
    document = write_verdict(CLAIM, REFUSAL, NOW)

    assert document["metadata"]["resourceVersion"] == "7"
    assert document["metadata"]["uid"] == "u1"
    assert document["status"]["devices"] == [
        {
            "driver": "gpu.slicewise.io",
            "pool": "n0",
            "device": "gpu-0",
            "shareID": "s1",
            "conditions": [
                {
                    "type": "slicewise.io/refused",
                    "status": "True",
                    "reason": "InsufficientGpuCores",
                    "message": "no room",
                    "lastTransitionTime": "2026-11-16T03:36:00Z",
                }
            ],
        }
    ]


def test_written_verdict_gives_the_claim_as_it_is_now():
    server = FakeServer(None)

    outcome, writer = write(server)

    assert outcome.status is WriteStatus.DONE
    assert outcome.claim.version == 9
    assert server.call.query["timeout"] == "5000ms"
    assert writer.idle


@pytest.mark.parametrize(
    ("error", "uid", "status"),
    [
        pytest.param(RefusedError(409, "Conflict", "changed"), "u1", WriteStatus.CONFLICT),
        pytest.param(RefusedError(409, "Conflict", "uid mismatch"), "u2", WriteStatus.GONE),
        pytest.param(RefusedError(404, "NotFound", "gone"), "u1", WriteStatus.GONE),
        pytest.param(RefusedError(403, "Forbidden", "no"), "u1", WriteStatus.REFUSED),
        pytest.param(FencedError("not leading"), "u1", WriteStatus.REFUSED),
        pytest.param(RefusedError(500, "Timeout", "late"), "u1", WriteStatus.UNKNOWN),
        pytest.param(LostError("no answer"), "u1", WriteStatus.UNKNOWN),
    ],
)
def test_failed_write_says_what_is_known_of_it(error, uid, status):
    outcome, writer = write(FakeServer(error, uid))

    assert outcome.status is status
    assert writer.idle is (status is not WriteStatus.UNKNOWN)
