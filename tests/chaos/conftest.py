"""Failures of the checks say what was wrong, as those of tests do."""

import pytest

pytest.register_assert_rewrite("chaos.bed")
