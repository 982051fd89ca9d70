"""Claims and pods come and go on the same GPUs while the parts that decide are killed."""

import itertools
import os
import random
import signal
from urllib.parse import urlsplit

import pytest

from e2e import wirings
from e2e.agent_node import AgentNode
from e2e.claim_node import CLAIMS, ClaimNode, claiming, share, speaking, template
from e2e.gpu_cluster import NAME, USER
from e2e.gpu_history import GpuHistory
from e2e.recorded_gpus import make_gpus
from hostile.holding_relay import History, HoldingRelay
from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.runtimes import WITH_CDI
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.since(36)]
MEMORY = 24576
# SLICEWISE_CHURN=500 takes four to seven minutes for each mode.
ARRIVALS = int(os.environ.get("SLICEWISE_CHURN", "100"))
BETWEEN_FAULTS = 15
ALIVE = 12
SIZES = ((10, 2), (20, 4), (30, 6), (50, 8), (70, 12))
ALONE = ("--dra", "--no-leader-elect")
LAST = "last"


class Churn:
    """Random arrivals and departures, so many pods alive at a time."""

    def __init__(self, shared, seed):
        self.shared = shared
        self.chance = random.Random(seed)
        self.alive = []
        self.made = 0

    def arrive(self):
        name, (cores, memory) = f"p{self.made}", self.chance.choice(SIZES)
        self.made += 1
        if self.chance.random() < 0.5:
            self.shared.apply(claiming(name, f"share-{cores}"))
        else:
            limits = {"slicewise.io/cores": cores, "slicewise.io/memory": memory * 1024}
            self.shared.apply(speaking(name, limits))
        self.alive.append(name)

    def depart(self):
        name = self.alive.pop(self.chance.randrange(len(self.alive)))
        with self.shared.node.plane.api() as api:
            api.delete(f"/api/v1/namespaces/{CLAIMS}/pods/{name}", gracePeriodSeconds=1)

    def step(self):
        """One arrival, and a departure once there are too many or by chance."""
        self.arrive()
        while len(self.alive) > ALIVE or (len(self.alive) > 6 and self.chance.random() < 0.4):
            self.depart()
        wait_until(lambda: self.count_undecided() <= 3, 60, self.complain)

    def count_undecided(self):
        return sum(not is_told(each) for each in self.shared.cluster.pods(CLAIMS))

    def complain(self):
        found = {
            each["metadata"]["name"]: each["status"] for each in self.shared.cluster.pods(CLAIMS)
        }
        return f"neither placed nor explained: {found} {self.shared.cluster.bed.tail('extender')}"


def is_told(found):
    """Whether the pod has a node, or it was said why it has none."""
    if found["spec"].get("nodeName"):
        return True
    conditions = {each["type"]: each for each in found["status"].get("conditions", ())}
    return bool(conditions.get("PodScheduled", {}).get("message"))


class ChurnNode(ClaimNode):
    """One whose extender hears of the cluster through a relay."""

    def __init__(self, node, mode):
        super().__init__(node, mode)
        access = node.plane.kubeconfig(USER)
        server = urlsplit(access.server)
        self.relay = HoldingRelay(
            (server.hostname, server.port), access.tls(), History(), random.Random(1)
        )
        self.flags = (*ALONE, f"--master={self.relay.start()}")
        node.start_extender(*self.flags)


@pytest.fixture(params=["shared", "engine"])
def shared(kube_binaries, request):
    with Testbed.start() as bed:
        plane = ControlPlane(bed, kube_binaries, Settings()).start()
        made = ChurnNode(
            AgentNode(plane, WITH_CDI, make_gpus((3, "NVIDIA A10", MEMORY))), request.param
        )
        for cores, memory in SIZES:
            made.apply(template(f"share-{cores}", share(cores, f"{memory}Gi")))
        yield made
        made.cluster.stop_extender()
        made.relay.stop()


def kill_leader(shared, churn):
    shared.cluster.stop_extender(signal.SIGKILL)
    shared.cluster.start_extender(*shared.flags, ready=False)


def freeze_leader(shared, churn):
    """It hears of what happens meanwhile too late, and of its lease as well."""
    shared.cluster.signal_extender("STOP", NAME)
    for _ in range(3):
        churn.arrive()
    churn.depart()
    shared.cluster.signal_extender("CONT", NAME)


def delay_watches(shared, churn):
    """It hears of everything late until the next fault, while its writes arrive at once."""
    shared.relay.delay_watches(churn.chance.uniform(0.5, 3))


def kill_agent(shared, churn):
    shared.node.stop_agent(signal.SIGKILL)
    shared.start_agent()


def kill_scheduler(shared, churn):
    shared.node.plane.stop_scheduler()
    shared.cluster.schedule_with(wirings.everything(shared.cluster.url()))


FAULTS = (kill_leader, delay_watches, kill_agent, kill_scheduler, freeze_leader)


def test_no_gpu_is_ever_given_beyond_its_size_and_every_pod_is_placed_or_told_why(shared):
    history = GpuHistory(shared.node.plane, shared.node.gpus, LAST)
    churn = Churn(shared, seed=20261118)
    faults = itertools.cycle(FAULTS)
    while churn.made < ARRIVALS:
        churn.step()
        if churn.made % BETWEEN_FAULTS == 0:
            shared.relay.delay_watches(0)
            next(faults)(shared, churn)
    shared.relay.delay_watches(0)

    wait_until(lambda: churn.count_undecided() == 0, 120, churn.complain)
    shared.apply({**speaking(LAST), "spec": {**speaking(LAST)["spec"], "schedulerName": "nobody"}})
    claim = {**template(LAST, share(10, "1Gi")), "kind": "ResourceClaim"}
    shared.apply({**claim, "spec": claim["spec"]["spec"]})
    history.finish()

    moments, together = 0, 0
    for sums in history.replay():
        moments += 1
        for (cores, memory), (more_cores, more_memory) in (
            (each[False], each[True]) for each in sums.values()
        ):
            assert cores + more_cores <= 100, sums
            assert memory + more_memory <= MEMORY, sums
            together += bool(cores and more_cores)
    granted, refused = history.count_verdicts()
    late = shared.relay.late_events
    print(f"{moments=} {together=} {granted=} {refused=} {late=}")
    assert late > 0
    assert moments > ARRIVALS
    assert together > 0
    assert granted > ARRIVALS // 10
