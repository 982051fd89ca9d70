import pytest

from slicewise.playground.cluster import Playground


@pytest.fixture
def playground():
    with Playground() as playground:
        yield playground
