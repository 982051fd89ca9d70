from pathlib import Path

import pytest

import builders
from slicewise.dialects import ALLOCATION, DEFAULT, GPUS
from slicewise.model import Container, NodeNotice

DOCUMENTS = Path(__file__).parents[2] / "docs" / "dialects"


def examples(name):
    text = (DOCUMENTS / f"{name}.md").read_text()
    return [block.strip() for block in text.split("```")[1::2]]


@pytest.mark.parametrize("dialect", DEFAULT.dialects, ids=lambda dialect: dialect.name)
def test_every_resource_is_documented(dialect):
    text = (DOCUMENTS / f"{dialect.name}.md").read_text()

    assert [name for name in dialect.pods.resources if f"`{name}`" not in text] == []


def test_documented_allocation_reads():
    record, _ = examples("slicewise")
    gpus = [builders.gpu(0, uuid="GPU-ef27"), builders.gpu(3, uuid="GPU-a01c")]
    pod = builders.pod(
        Container("train", limits={"slicewise.io/gpu": 2}),
        annotations={"slicewise.io/shares.train": "whole,30%:4096", ALLOCATION: record},
    )

    allocation = DEFAULT.read_allocation(pod, builders.node("a3", gpus=gpus))

    assert allocation.slices_of("train") == (
        builders.piece(0, 100, 40960),
        builders.piece(3, 30, 4096),
    )


def test_documented_inventory_reads():
    _, inventory = examples("slicewise")

    node = DEFAULT.read_node(NodeNotice("a3", annotations={GPUS: inventory}))

    assert node.gpus == (builders.gpu(0, uuid="GPU-ef27", numa=0),)


def test_documented_register_reads():
    text = (DOCUMENTS / "tkestack.md").read_text()
    register = next(part for part in text.split("`") if part.startswith("[{"))

    node = DEFAULT.read_node(
        NodeNotice("a3", annotations={"tydic.io/nvidia-device-register": register})
    )

    assert [(gpu.uuid, gpu.memory, gpu.model) for gpu in node.gpus] == [
        ("GPU-ef27", 24576, "NVIDIA A10")
    ]
