from dataclasses import replace

import pytest

from slicewise.explain.answer_text import describe_claim
from slicewise.explain.claim_explanation import explain_claim, sum_claims
from slicewise.explain.device_selectors import UnknownNameError, matches
from slicewise.kube.dra.offers import read_offers, read_wanted
from slicewise.kube.dra.slices import DeviceTaint, SliceBody, SliceDevice, write_spec
from slicewise.kube.objects import Metadata
from slicewise.model import MiB
from slicewise.model.claim import DRIVER, ENGINE_TAINT, Claim, ClaimedDevice

CLASSES = {DRIVER: (f'device.driver == "{DRIVER}"',)}
A100 = SliceDevice("gpu-0", MiB(40960), {"index": 0, "productName": "NVIDIA A100", "numa": 0})
BUSY = SliceDevice("gpu-1", MiB(40960), {"index": 1, "productName": "Tesla T4"}, taken=(80, 1024))


def offers(*devices):
    return read_offers(SliceBody(Metadata(), write_spec("n0", devices, 1)))


def wanted(status=None, **exactly):
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, **exactly}}
    return read_wanted(
        {
            "metadata": {"name": "c", "namespace": "ml", "uid": "u"},
            "spec": {"devices": {"requests": [request]}},
            "status": status or {},
        }
    )


def ask(held=(), devices=(A100, BUSY), **exactly):
    told = explain_claim(wanted(**exactly), offers(*devices), sum_claims(held), CLASSES)
    (request,) = told["requests"]
    return request


def amounts(**requests):
    return {"requests": requests}


def test_every_gpu_says_what_it_lacks_beside_pods_and_claims():
    device = ClaimedDevice("gpu", "n0", "gpu-0", 60, 4096, "s")

    told = ask(held=[Claim("x", "ml", "x", (device,))], capacity=amounts(cores="50", memory="4Gi"))

    assert told["fits"] is False
    assert told["asks"] == "50 percent and 4096 MiB of a GPU"
    assert told["nodes"][0]["gpus"] == [
        {"gpu": 0, "missing": ["10 percent"]},
        {"gpu": 1, "missing": ["30 percent"]},
    ]


def test_claim_without_amounts_wants_a_whole_gpu():
    told = ask(devices=[BUSY])

    assert told["asks"] == "a whole GPU"
    assert told["nodes"][0]["gpus"][0]["missing"] == ["80 percent", "1024 MiB"]


def test_count_wants_so_many_different_gpus():
    asked = amounts(cores="10", memory="1Gi")

    assert ask(capacity=asked, count=2)["fits"] is True
    assert ask(capacity=asked, count=3)["fits"] is False


@pytest.mark.parametrize(
    ("exactly", "words"),
    [
        ({"capacity": amounts(core="30")}, "capacity core: expected cores or memory"),
        ({"deviceClassName": "gpu"}, "deviceClassName 'gpu': there is no such class"),
        (
            {
                "selectors": [
                    {"cel": {"expression": f'device.attributes["{DRIVER}"].product == "x"'}}
                ]
            },
            "selector: product: the GPUs have index, numa, productName",
        ),
    ],
)
def test_misspelt_word_is_named_with_those_there_are(exactly, words):
    assert words in ask(**exactly)["problem"]


def test_allocated_and_refused_claims_say_so():
    result = {
        "driver": DRIVER,
        "pool": "n0",
        "device": "gpu-0",
        "request": "gpu",
        "consumedCapacity": {"cores": "30", "memory": "4Gi"},
        "bindingFailureConditions": ["slicewise.io/refused"],
    }
    status = {"allocation": {"devices": {"results": [result]}}}
    condition = {"type": "slicewise.io/refused", "status": "True", "message": "no room"}
    entry = {"driver": DRIVER, "pool": "n0", "device": "gpu-0", "conditions": [condition]}

    granted = explain_claim(wanted(status), (), {}, {})
    refused = explain_claim(wanted({**status, "devices": [entry]}), (), {}, {})

    assert granted["state"] == "allocated"
    assert granted["holds"] == ["30 percent and 4096 MiB of gpu-0 of node n0"]
    assert (refused["state"], refused["reason"]) == (
        "refused, and about to be allocated again",
        "no room",
    )


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        (f"device.driver == '{DRIVER}'", True),
        (f'device.attributes["{DRIVER}"].index >= 1', False),
        (f'device.attributes["{DRIVER}"].productName.lowerAscii().contains("a100")', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("30Gi")) > 0', True),
        (
            f'device.driver == "{DRIVER}" && (device.attributes["{DRIVER}"].index == 7)',
            False,
        ),
        ("device.allowMultipleAllocations == true", True),
        (f'device.attributes["{DRIVER}"].index == 7 && true || true', True),
        (f'device.attributes["{DRIVER}"].index == "0"', False),
        (f'device.attributes["{DRIVER}"].index < "0"', None),
        ("device.name == 'x' || ip('::1').family() == 6", None),
        (f'device.attributes["{DRIVER}"].index == 7 && size(device.attributes) > 3', False),
    ],
)
def test_selectors_are_evaluated_and_nothing_is_guessed(expression, chosen):
    (device,) = offers(A100)

    assert matches(expression, device) is chosen


def test_attribute_that_no_gpu_has_is_an_error():
    (device,) = offers(A100)

    with pytest.raises(UnknownNameError, match="modelName"):
        matches(f'device.attributes["{DRIVER}"].modelName == "x"', device)


def closed(*devices):
    return offers(*(replace(each, taints=(DeviceTaint(ENGINE_TAINT),)) for each in devices))


@pytest.mark.parametrize(
    ("exactly", "words"),
    [
        ({"allocationMode": "All"}, "request gpu: allocationMode All"),
        (
            {"selectors": [{"cel": {"expression": "device.unheard()"}}]},
            "selector device.unheard(): letter 16: 'unheard()' is not understood",
        ),
        ({}, None),
        ({"allocationMode": "All", "tolerations": [{"operator": "Exists"}]}, None),
    ],
)
def test_claim_that_the_engine_leaves_out_says_why_and_what_to_do(exactly, words):
    told = explain_claim(wanted(**exactly), closed(A100), {}, CLASSES)

    assert told.get("leftOut") == words
    assert told["requests"][0]["fits"] is True
    if words is not None:
        lines = "\n".join(describe_claim(told))
        assert words in lines
        assert "tolerations: [{key: slicewise.io/engine, operator: Exists" in lines
