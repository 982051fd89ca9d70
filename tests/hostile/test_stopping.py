"""A tenant tries to keep the scheduler busy for ever."""

from typing import Any

import pytest

from e2e.gpu_nodes import A10, mixed_node
from hostile.tenancy import Pod, Tenancy, make_pod, share

pytestmark = pytest.mark.cluster
NODES = 60
EACH = 12
# Generous on a busy machine; before, the first of these pods alone took longer.
SECONDS = 40.0


def nine_gpus(name: str) -> Pod:
    """Nine containers that want a whole GPU each, on nodes of eight."""
    pod = make_pod(name, {"slicewise.io/gpu": 1})
    (container,) = pod["spec"]["containers"]
    pod["spec"]["containers"] = [{**container, "name": f"c{at}"} for at in range(9)]
    return pod


def uneven_shares(name: str) -> Pod:
    """Containers whose shares just do not fit together, in every order."""
    pod = make_pod(name, {})
    (container,) = pod["spec"]["containers"]
    pod["spec"]["containers"] = [
        {**container, "name": f"c{at}", "resources": {"limits": limits(51 + at % 5)}}
        for at in range(9)
    ]
    return pod


def limits(cores: int) -> dict[str, str]:
    """A share of more than half a GPU."""
    return {"slicewise.io/cores": str(cores), "slicewise.io/memory": "13000"}


def long_policy(name: str) -> Pod:
    """A policy of thousands of terms."""
    terms = ",".join(["fgd:1"] * 22000)
    return annotated(name, {"slicewise.io/policy": f"node={terms}"})


def long_annotations(name: str) -> Pod:
    """Annotations as large as the API server takes them, under names that are read."""
    words = ",".join(f"a{at}" for at in range(32000))
    return annotated(name, {"slicewise.io/models": words})


def many_shares(name: str) -> Pod:
    """One container that asks for thousands of shares."""
    return annotated(
        name,
        {"slicewise.io/shares.main": ",".join(["1%:1"] * 4000)},
        {"slicewise.io/gpu": 4000},
    )


def annotated(name: str, marks: dict[str, str], asked: dict[str, Any] | None = None) -> Pod:
    """A pod that asks for a share, with annotations."""
    wanted = asked or {"slicewise.io/cores": 10, "slicewise.io/memory": 100}
    return make_pod(name, wanted, metadata={"annotations": marks})


SPITEFUL = (nine_gpus, uneven_shares, long_policy, long_annotations, many_shares)


@pytest.mark.parametrize("spite", SPITEFUL, ids=lambda each: each.__name__.replace("_", "-"))
def test_spiteful_pods_do_not_keep_others_waiting(tenancy: Tenancy, spite: Any) -> None:
    tenancy.cluster.add_nodes(*(mixed_node(f"s{at:02}", A10, 8) for at in range(NODES)))
    tenancy.tenant.create(*(spite(f"p{at}") for at in range(EACH)))

    tenancy.victim.create(share("honest", 10, 1000))

    tenancy.victim.wait("honest", lambda pod: pod["spec"].get("nodeName"), SECONDS)
