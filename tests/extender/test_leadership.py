import asyncio

from fakes.cluster import FakeState
from slicewise.extender.leadership import Leadership
from slicewise.extender.metrics import Metrics
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kube.leading.fence import Fence, LeaseTiming
from slicewise.kube.outcomes import PodName


class Candidate:
    """An election whose outcome a test chooses."""

    def __init__(self):
        self.now = 0.0
        self.fence = Fence(LeaseTiming(), lambda: self.now)
        self.epoch = 0
        self.rival = self.refusal = self.holder = self.bar = None
        self.name, self.identity = "Lease a/b", "us"

    @property
    def leading(self):
        return self.fence.open

    def win(self, leadership, epoch):
        self.epoch = epoch
        self.fence.renew(self.now)
        leadership._take(True)


class PostedEvents(list):
    """Events that were posted, with their pods."""

    def post(self, pod, event):
        self.append((pod, event))


class Relist:
    """A list of pods that ends when the test says so."""

    def __init__(self):
        self.begun = []

    async def __call__(self):
        self.begun.append(asyncio.Event())
        await self.begun[-1].wait()


def lead(work):
    async def run():
        candidate, relist = Candidate(), Relist()
        leadership = Leadership(candidate, Client(Access("http://127.0.0.1:1")))
        leadership.relist = relist
        await work(candidate, relist, leadership)
        leadership._take(False)

    asyncio.run(run())


async def turn():
    for _ in range(3):
        await asyncio.sleep(0)


def test_new_leader_decides_only_after_it_has_listed_the_pods():
    async def work(candidate, relist, leadership):
        assert leadership.obstacle == "it does not lead"
        candidate.win(leadership, 7)
        await turn()
        assert "lists the pods first" in leadership.obstacle
        relist.begun[0].set()
        await turn()
        assert leadership.obstacle is None
        assert leadership.epoch == 7

    lead(work)


def test_list_of_an_earlier_term_does_not_count():
    async def work(candidate, relist, leadership):
        candidate.win(leadership, 7)
        await turn()
        leadership._take(False)
        candidate.win(leadership, 8)
        await turn()
        relist.begun[0].set()
        await turn()
        assert "lists the pods first" in leadership.obstacle
        relist.begun[1].set()
        await turn()
        assert leadership.obstacle is None

    lead(work)


def test_obstacle_says_who_leads_or_what_is_missing():
    async def work(candidate, relist, leadership):
        candidate.holder = "other"
        assert leadership.obstacle == "it does not lead; other does"
        candidate.refusal = "403 Forbidden"
        assert "may not use Lease a/b" in leadership.obstacle
        candidate.rival = "third"
        assert leadership.obstacle.startswith("another extender decides: third")

    lead(work)


def test_writes_go_through_the_fence_of_the_election():
    client = Client(Access("http://127.0.0.1:1"))
    candidate = Candidate()

    Leadership(candidate, client)

    assert client.fence is candidate.fence


def test_other_deciders_are_counted_and_shown_on_our_own_pod():
    async def work(candidate, relist, leadership):
        metrics, events = Metrics(FakeState()), PostedEvents()
        leadership.report_others(metrics, events, PodName("u", "kube-system", "extender-0"))
        candidate.tell_rival("other")
        assert b"slicewise_extender_other_deciders_total 1.0" in metrics.render()
        ((pod, event),) = events
        assert (pod.name, event.reason, event.warning) == ("extender-0", "TwoDeciders", True)

    lead(work)
