"""The real kubectl and its kin, wherever this machine keeps them."""

import shutil
import subprocess
from pathlib import Path

from slicewise_testbed.binaries import find_binaries


def find_program(name: str) -> str | None:
    """A program of the version that is tested, or else from PATH."""
    found = find_binaries()
    return shutil.which(name) if found.missing((name,)) else found.path(name)


class Kubectl:
    """kubectl on one cluster, with a discovery cache of its own."""

    def __init__(self, program: str, kubeconfig: Path, folder: Path) -> None:
        self._command = [program, "--kubeconfig", str(kubeconfig), "--cache-dir", str(folder)]

    def __call__(self, *words: str, text: str | None = None) -> str:
        """What a command prints; fails with what it complains about."""
        done = subprocess.run(
            [*self._command, *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def refused(self, *words: str, text: str | None = None) -> str:
        """What a command complains about; fails when it does not."""
        done = subprocess.run(
            [*self._command, *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode != 0, f"kubectl {' '.join(words)}: {done.stdout}"
        return done.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A command left running; the caller ends it."""
        return subprocess.Popen([*self._command, *words], stdout=subprocess.PIPE, text=True)
