"""Benchmarks of the core, on one thread: `python -m bench [prefix]`, one JSON object a line.

Times are CPU time of that thread: what passes on an idle machine, undisturbed by a busy one.
"""

import os

# Read by numpy's libraries when they load, so it must stand before any other import.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
# Connections that end when an agent does are no news.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
