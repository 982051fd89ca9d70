"""Settings that every test shares."""

from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the claim holds.
settings.register_profile("slicewise", deadline=None)
settings.load_profile("slicewise")
