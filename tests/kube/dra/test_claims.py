import msgspec
import pytest

from slicewise.kube.dra.claims import ResourceClaimBody, read_claim
from slicewise.model import QuantityError

RESULT = {
    "request": "gpu/small",
    "driver": "gpu.slicewise.io",
    "pool": "n0",
    "device": "gpu-0",
    "shareID": "s1",
    "consumedCapacity": {"cores": "30", "memory": "4100.5Mi"},
}


def read(*results, devices=()):
    status = {"allocation": {"devices": {"results": list(results)}}, "devices": list(devices)}
    metadata = {"name": "c1", "namespace": "ml", "uid": "u1"}
    document = {"metadata": metadata, "status": status}
    return read_claim(msgspec.json.decode(msgspec.json.encode(document), type=ResourceClaimBody))


def test_device_has_whole_amounts_and_the_name_that_containers_use():
    (device,) = read(RESULT).devices

    assert (device.request, device.cores, device.memory, device.share) == ("gpu", 30, 4101, "s1")


def test_devices_of_other_drivers_are_left_out():
    assert read({**RESULT, "driver": "nic.example.com"}).devices == ()


def test_conditions_that_are_not_true_are_pending():
    result = {**RESULT, "bindingConditions": ["slicewise.io/granted"]}
    status = {"driver": "gpu.slicewise.io", "pool": "n0", "device": "gpu-0"}
    granted = {**status, "conditions": [{"type": "slicewise.io/granted", "status": "True"}]}

    assert read(result).devices[0].pending == ("slicewise.io/granted",)
    assert read(result, devices=[granted]).devices[0].pending == ()


def test_claim_without_an_allocation_has_no_devices():
    body = msgspec.json.decode(b'{"metadata":{"name":"c1"}}', type=ResourceClaimBody)

    assert read_claim(body).devices == ()


def test_device_whose_failure_condition_is_true_is_refused_with_its_message():
    result = {**RESULT, "bindingFailureConditions": ["slicewise.io/refused"]}
    condition = {"type": "slicewise.io/refused", "status": "True", "message": "no room"}
    status = {"driver": "gpu.slicewise.io", "pool": "n0", "device": "gpu-0"}

    assert read(result).refused == ""
    assert read(result, devices=[{**status, "conditions": [condition]}]).refused == "no room"


def test_amount_that_is_no_quantity_is_named():
    with pytest.raises(QuantityError, match=r"consumedCapacity\.cores='lots'"):
        read({**RESULT, "consumedCapacity": {"cores": "lots"}})
