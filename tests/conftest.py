"""Hypothesis for every test: no deadlines, and the same examples in every CI run."""

import os

from hypothesis import settings

settings.register_profile("slicewise", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("slicewise")
