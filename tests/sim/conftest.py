"""The openb files, for the tests that replay them."""

import os
from pathlib import Path

import pytest

from slicewise.sim.openb import OpenbFolder
from slicewise.sim.trace_source import DATA, SourceError, find_openb


@pytest.fixture(scope="session")
def openb() -> OpenbFolder:
    named = os.environ.get(DATA)
    try:
        return find_openb(Path(named) if named else None)
    except SourceError as error:
        pytest.skip(str(error))
