"""The one exception of the testbed: something about this machine or a process went wrong."""


class TestbedError(Exception):
    """What went wrong, why, and what to do about it, in one line."""

    __test__ = False  # pytest would otherwise collect it by its name
