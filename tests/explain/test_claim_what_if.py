import pytest

from slicewise.explain.claim_explanation import sum_claims
from slicewise.explain.claim_what_if import (
    ClaimOffers,
    describe_asks,
    explain_refusal,
    find_places,
)
from slicewise.kube.dra.offers import read_offers, read_wanted
from slicewise.kube.dra.slices import SliceBody, SliceDevice, write_spec
from slicewise.kube.objects import Metadata
from slicewise.model import MiB
from slicewise.model.claim import DRIVER, Claim, ClaimedDevice

CLASSES = {DRIVER: (f'device.driver == "{DRIVER}"',)}
MEMORY = 40960


def offers(held=(), **taken):
    """Nodes by name, with what pods hold in percent of each of their GPUs."""
    devices = [
        device
        for node, used in taken.items()
        for device in read_offers(
            SliceBody(
                Metadata(),
                write_spec(
                    node,
                    [
                        SliceDevice(f"{node}-{at}", MiB(MEMORY), {"index": at}, taken=(percent, 0))
                        for at, percent in enumerate(used)
                    ],
                    1,
                ),
            )
        )
    ]
    return ClaimOffers(devices, sum_claims(held), CLASSES)


def request(name="gpu", cores=None, memory="1Gi", **more):
    capacity = {"capacity": {"requests": {"cores": cores, "memory": memory}}} if cores else {}
    return {"name": name, "exactly": {"deviceClassName": DRIVER, **capacity, **more}}


def wanted(*requests, status=None):
    return read_wanted(
        {
            "metadata": {"name": "c", "namespace": "ml"},
            "spec": {"devices": {"requests": list(requests)}},
            "status": status or {},
        }
    )


def places(*requests, **nodes):
    return {
        each.node: [piece.device.name for piece in each.pieces]
        for each in find_places([wanted(*requests)], offers(**nodes))
    }


def test_share_fits_on_each_node_with_room_and_on_its_first_gpu_with_room():
    assert places(request(cores="30"), a=[80, 60], b=[90, 90], c=[0]) == {
        "a": ["a-1"],
        "c": ["c-0"],
    }


def test_requests_that_would_block_each_other_are_tried_the_other_way():
    share, whole = request("share", cores="30"), request("whole")

    assert places(share, whole, a=[0, 50]) == {"a": ["a-1", "a-0"]}


def test_devices_of_one_request_are_different_and_those_of_two_need_not_be():
    assert places(request(cores="40", count=2), a=[0]) == {}
    assert places(request("x", cores="40"), request("y", cores="40"), a=[0]) == {"a": ["a-0"] * 2}


def test_second_alternative_serves_where_the_first_does_not_fit():
    def part(name, cores):
        return {"name": name, **request(cores=cores)["exactly"]}

    either = {"name": "gpu", "firstAvailable": [part("big", "80"), part("small", "20")]}

    (place,) = find_places([wanted(either)], offers(a=[50]))

    assert [piece.cores for piece in place.pieces] == [20]


def test_what_one_pod_would_get_is_not_there_for_the_next():
    claim, left = wanted(request(cores="60")), offers(a=[0, 0])
    found = []
    while place := next(find_places([claim], left), None):
        found.append(place.pieces[0].device.name)
        left = left.hold(place)

    assert found == ["a-0", "a-1"]


def test_claim_with_gpus_keeps_its_node():
    result = {"driver": DRIVER, "pool": "b", "device": "b-0", "request": "gpu"}
    allocated = wanted(request(), status={"allocation": {"devices": {"results": [result]}}})

    assert [each.node for each in find_places([allocated], offers(a=[0], b=[100]))] == ["b"]


def test_refusal_tells_what_each_gpu_lacks_beside_claims():
    device = ClaimedDevice("gpu", "a", "a-0", 60, 1024, "s")
    claim, given = wanted(request(cores="50")), offers([Claim("u", "ml", "x", (device,))], a=[0])

    told = explain_refusal([claim], given)

    assert list(find_places([claim], given)) == []
    assert told["summary"] == "0 of 1 nodes that offer GPUs to claims can take it"
    (node,) = told["claims"][0]["requests"][0]["nodes"]
    assert node["gpus"] == [{"gpu": 0, "missing": ["10 percent"]}]


def test_requests_that_fit_one_by_one_only_are_told_so():
    claim = wanted(request("x", cores="60"), request("y", cores="60"))

    assert explain_refusal([claim], offers(a=[0]))["summary"].endswith(
        "not all of them on one node"
    )


@pytest.mark.parametrize(
    "exactly", [{"deviceClassName": "gpus"}, {"capacity": {"requests": {"core": "5"}}}]
)
def test_misspelt_word_fits_nowhere(exactly):
    assert places(request(**exactly), a=[0]) == {}


def test_asks_are_told_claim_by_claim():
    assert describe_asks([wanted(request("x", cores="30"), request("y"))]) == (
        "c: 30 percent and 1024 MiB of a GPU and a whole GPU"
    )
