"""Prints what the product runs with, pinned with hashes, for `pip install --require-hashes`."""

import sys

from image.wheels import find_pins, write_requirements

if __name__ == "__main__":
    sys.stdout.write(write_requirements(find_pins()))
