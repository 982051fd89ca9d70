from collections.abc import Iterator

import pytest

from conformance.server import Client, Server
from slicewise_playground.cluster import Playground

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


@pytest.fixture
def client(playground, tmp_path) -> Iterator[Client]:
    client = Client(Server("embedded", playground.url, tmp_path / "kubeconfig"))
    yield client
    client.close()


@pytest.fixture
def pods() -> str:
    return PODS
