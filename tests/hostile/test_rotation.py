"""An administrator changes the signing key while pods come and go."""

import signal

import pytest

from hostile.tenancy import SIGNATURE, Tenancy, marks_of, share
from slicewise_testbed.testbed import wait_until

pytestmark = pytest.mark.cluster
MOST = 60


def test_pods_bind_and_start_all_the_time_while_keys_are_rotated(tenancy: Tenancy) -> None:
    tenancy.cluster.stop_extender(signal.SIGTERM)
    tenancy.node.start_extender("--key-overlap-seconds=3")
    (first,) = tenancy.run(tenancy.tenant, share("before", 1, 1))

    code, _ = tenancy.administer("slicewise", "trust", "rotate")
    assert code == 0
    keys, made = {key_of(first)}, ["before"]
    while len(keys) < 2 and len(made) < MOST:
        name = f"p{len(made)}"
        (pod,) = tenancy.run(tenancy.tenant, share(name, 1, 1))
        keys.add(key_of(pod))
        made.append(name)

    assert len(keys) == 2
    assert [name for name in made if tenancy.refusals(tenancy.tenant, name)] == []
    # What the old key signed starts again, for its public key stays as long as the pod does.
    tenancy.tenant.end("before")
    wait_until(
        lambda: len(tenancy.starts(tenancy.tenant, "before")) == 2, 60, tenancy.node.agent_tail
    )


def key_of(pod: dict) -> str:
    """The identifier of the key that signed the pod's record."""
    return marks_of(pod)[SIGNATURE].partition(".")[0]
