"""A tenant writes terminal escapes where an administrator reads them."""

import pytest

from hostile.tenancy import RECORD, Tenancy, make_pod

pytestmark = pytest.mark.cluster
# Clears the screen, sets the window's title, and moves back over what was printed.
SPITE = "\x1b[2J\x1b]0;owned\x07\x9b1A\rspite\b"
CONTROLS = {"\x1b", "\x07", "\x9b", "\r", "\b"}
OWN = {"slicewise.io/cores": 10, "slicewise.io/memory": 10}
GPUSHARE = {"aliyun.com/gpu-mem": 1}
PODS = {
    "policy": (OWN, "slicewise.io/policy"),
    "models": (OWN, "slicewise.io/models"),
    "shares": (OWN, "slicewise.io/shares.main"),
    "record": (OWN, RECORD),
    "marked": (GPUSHARE, "ALIYUN_COM_GPU_MEM_IDX"),
}
COMMANDS = (
    ("slicewise", "why", "policy", "-n", "mallory"),
    ("slicewise", "why", "models", "-n", "mallory"),
    ("slicewise", "why", "record", "-n", "mallory"),
    ("slicewise", "doctor"),
    ("slicewise", "top"),
    ("kubectl-inspect-gpushare", "-d"),
)


def test_no_escape_of_a_tenant_reaches_the_terminal(tenancy: Tenancy) -> None:
    for name, (limits, key) in PODS.items():
        bound = {"nodeName": tenancy.node.node.name} if name in ("record", "marked") else {}
        meta = {"annotations": {key: SPITE}}
        tenancy.tenant.create(make_pod(name, limits, metadata=meta, **bound))

    shown = {words: tenancy.administer(*words)[1] for words in COMMANDS}

    assert any("spite" in text for text in shown.values())
    assert {words: text for words, text in shown.items() if CONTROLS & set(text)} == {}
