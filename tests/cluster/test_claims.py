from dataclasses import replace

import builders
from fakes.reader import PlainReader
from slicewise.cluster import (
    Allowance,
    Assume,
    CachedPodReader,
    ClaimGone,
    ClaimSeen,
    GrantClaim,
    Ledger,
    NodeSeen,
    PodSeen,
    Quota,
)
from slicewise.dialects import DEFAULT
from slicewise.model import Allocation, ContainerAllocation, MiB, Percent, Reason, Slice
from slicewise.model.claim import GRANTED, Claim, ClaimUser

GPUS = tuple(builders.gpu(at, shared=True) for at in range(2))
NODE = builders.node(gpus=GPUS, agent=True)


def ledger():
    made = Ledger(PlainReader())
    made.apply(NodeSeen(NODE, 1))
    return made


def claim(cores=30, memory=4096, *, gpu=0, uid="c1", version=1, users=("train",), **facts):
    device = builders.claimed(GPUS[gpu], cores=cores, memory=memory, share=uid, **facts)
    named = tuple(ClaimUser(f"uid-{name}", name) for name in users)
    return Claim(uid, "team-a", "gpu", (device,), named, version)


def assume(cores, memory, uid="p1"):
    request = builders.fraction(cores, memory)
    slices = (Slice(0, Percent(cores), MiB(memory)),)
    allocation = Allocation("n0", (ContainerAllocation("c0", slices),))
    return Assume(uid, "default", uid, request, allocation, deadline=10.0)


def used(ledger):
    state = ledger.snapshot().get("n0")
    return state.used_cores[0], state.used_memory[0]


def test_claim_that_several_pods_use_counts_once_and_in_its_quota():
    book = ledger()
    book.apply(ClaimSeen(claim(users=("train", "serve"))))

    (held,) = book.snapshot().get("n0").holdings
    assert held.charges == (Slice(0, 30, 4096),)
    assert held.holder == "team-a/train (claim gpu)"
    assert book.usage.held("team-a", NODE.gpus[0].model) == 30


def test_claim_without_a_verdict_counts_from_the_moment_it_is_granted():
    book = ledger()
    waiting = claim(60, pending=(GRANTED,))
    book.apply(ClaimSeen(waiting))
    assert used(book) == (0, 0)

    assert book.apply(GrantClaim("c1", waiting.key))

    assert used(book) == (60, 4096)
    assert not book.apply(assume(60, 1024))


def test_claim_that_does_not_fit_beside_a_pod_is_not_granted_and_says_why():
    book = ledger()
    assert book.apply(assume(60, 1024))
    waiting = claim(60, pending=(GRANTED,))
    book.apply(ClaimSeen(waiting))

    assert not book.apply(GrantClaim("c1", waiting.key))

    refusal = book.claims.find_refusal(waiting)
    assert refusal.reason is Reason.CORES
    assert refusal.detail == "gpu 0 of node n0: needs 60 percent, free is 40"
    assert used(book) == (60, 1024)


def test_grant_of_an_earlier_allocation_does_not_count_for_a_later_one():
    book = ledger()
    first = claim(60, pending=(GRANTED,))
    book.apply(ClaimSeen(first))
    book.apply(GrantClaim("c1", first.key))
    second = claim(60, gpu=1, pending=(GRANTED,), version=2)

    book.apply(ClaimSeen(second))

    assert used(book) == (0, 0)
    assert not book.apply(GrantClaim("c1", first.key))


def test_claim_is_freed_when_refused_deallocated_or_gone():
    for event in (
        ClaimSeen(claim(refused="no room", version=2)),
        ClaimSeen(replace(claim(version=2), devices=())),
        ClaimGone("c1"),
    ):
        book = ledger()
        book.apply(ClaimSeen(claim()))
        assert used(book) == (30, 4096)
        book.apply(event)
        assert used(book) == (0, 0)
        assert not book.apply(ClaimSeen(claim(version=1)))


def test_claim_is_charged_again_when_its_node_comes_back():
    book = Ledger(PlainReader())
    book.apply(ClaimSeen(claim()))

    book.apply(NodeSeen(NODE, 1))

    assert used(book) == (30, 4096)


def test_pod_whose_gpus_a_claim_serves_is_not_charged_beside_it():
    book = Ledger(CachedPodReader(DEFAULT))
    book.apply(NodeSeen(NODE, 1))
    book.apply(ClaimSeen(claim(100, 40960)))
    pod = builders.pod(uid="u", node="n0", limits={"nvidia.com/gpu": 1}, by_claim=True)

    book.apply(PodSeen(pod))

    assert used(book) == (100, 40960)
    assert book.problems() == ()


def test_unhealthy_gpu_is_not_granted():
    closed = builders.node(gpus=[replace(GPUS[0], healthy=False), GPUS[1]], agent=True)
    book = Ledger(PlainReader())
    book.apply(NodeSeen(closed, 1))

    refusal = book.claims.find_refusal(claim(pending=(GRANTED,)))

    assert refusal.detail == "gpu 0 of node n0 takes no claims: it is unhealthy"


def test_quota_says_with_numbers_when_a_claim_is_too_much():
    quota = Quota({"team-a": Allowance({"A100": 1})})
    book = ledger()
    book.apply(ClaimSeen(claim(60)))
    more = claim(60, gpu=1, uid="c2", pending=(GRANTED,))

    refused = quota.find_excess("team-a", more.slices(NODE), NODE, book.usage)

    assert refused == "namespace team-a holds 60 of 100 percent of A100, needs 60 more"
    assert quota.find_excess("team-b", more.slices(NODE), NODE, book.usage) is None
