import asyncio

import builders
from slicewise.kube.affinity import NodeRequirements
from slicewise.kube.client import Client
from slicewise.kube.credentials import Access
from slicewise.kube.dra.claiming_pods import ClaimingPod
from slicewise.kube.objects import KeyFilter, ObjectReader
from slicewise.kube.watch import Gone, Seen, WatchSettings
from slicewise.model.claim import Claim, ClaimSpec
from slicewise.state.engine_watch import EngineWatch


def generated(uid):
    """A claim that was made from a template of the pod p1."""
    spec = ClaimSpec(())
    return Claim(uid, "ml", f"made-{uid}", version=1, spec=spec, owner="p1", owner_claim="gpu")


async def watch_claims(*batches):
    """What a pod with one generated claim is found to use after these changes of claims."""
    reader = ObjectReader(KeyFilter(lambda _: True, lambda _: True))
    watch = EngineWatch(Client(Access("http://nowhere")), reader, WatchSettings())
    pod = ClaimingPod(builders.pod(uid="p1", namespace="ml"), (("gpu", ""),), NodeRequirements())
    watch.take_pods([Seen(pod, new=True)])
    for changes in batches:
        watch.take_claims(changes)
    return list(watch.find_claims(pod))


def test_claim_made_again_is_found_when_a_list_shows_the_new_one_before_the_old_is_gone():
    # A list hands over what it shows before what it no longer does.
    found = asyncio.run(
        watch_claims(
            [Seen(generated("c1"), new=True)], [Seen(generated("c2"), new=True)], [Gone("c1", 5)]
        )
    )

    assert found == ["c2"]


def test_claim_that_is_gone_is_not_found():
    found = asyncio.run(watch_claims([Seen(generated("c1"), new=True)], [Gone("c1", 5)]))

    assert found == [None]
