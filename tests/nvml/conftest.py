import os

import pytest

from fakes.nvml import build_library
from slicewise.nvml.library import LibraryDriver
from slicewise.nvml.simulated import SimulatedDriver
from slicewise_testbed.nvml_file import FILE_VARIABLE, write_library_file


class Machine:
    """One description, seen through the C library and through the simulated driver."""

    def __init__(self, folder, text: str) -> None:
        self.source = folder / "gpus.yaml"
        self.target = folder / "machine.txt"
        self.sysfs = folder / "sys"
        self.describe(text)
        self.real = LibraryDriver(build_library(), sysfs=self.sysfs)
        self.simulated = SimulatedDriver(self.source)

    def describe(self, text: str) -> None:
        draft = self.source.with_suffix(".draft")
        draft.write_text(text)
        os.replace(draft, self.source)
        write_library_file(self.source, self.target)

    def close(self) -> None:
        self.real.close()
        self.simulated.close()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes a machine from a description."""
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "machine.txt"))
    made = []

    def make(text: str) -> Machine:
        made.append(Machine(tmp_path, text))
        return made[-1]

    yield make
    for each in made:
        each.close()
