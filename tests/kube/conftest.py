import pytest

from slicewise_playground.cluster import Playground


@pytest.fixture
def playground():
    with Playground() as playground:
        yield playground
