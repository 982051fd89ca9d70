"""The real kubectl, wherever this machine keeps it."""

import os
import shutil
import subprocess
from pathlib import Path

CACHE = Path.home() / ".cache" / "slicewise" / "kube"


def find_kubectl() -> str | None:
    """kubectl from KUBEBUILDER_ASSETS, then from the cache of built binaries, then from PATH."""
    folders = [Path(os.environ["KUBEBUILDER_ASSETS"])] if "KUBEBUILDER_ASSETS" in os.environ else []
    folders += sorted(CACHE.glob("v*/"), reverse=True)
    for folder in folders:
        if os.access(folder / "kubectl", os.X_OK):
            return str(folder / "kubectl")
    return shutil.which("kubectl")


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
