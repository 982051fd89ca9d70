"""Where the openb files are, for the tests that replay them."""

import os
from pathlib import Path

import pytest

from slicewise.sim.openb import OpenbFolder

ROOT = Path(__file__).resolve().parents[2]


def find_openb() -> Path:
    return Path(os.environ.get("SLICEWISE_OPENB") or ROOT.parent / "shared" / "data" / "openb")


@pytest.fixture(scope="session")
def openb() -> OpenbFolder:
    path = find_openb()
    if not path.is_dir():
        pytest.skip(f"needs the openb files: {path} is absent and SLICEWISE_OPENB is not set")
    return OpenbFolder(path)
