"""`slicewise extender` as a process of its own, on an embedded API with GPU nodes."""

import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import builders
from slicewise.dialects import GPUS, write_gpus
from slicewise_playground.cluster import Playground

_CODE = "from slicewise.cli.main import main; main()"


def free_port():
    """A port that nobody has right now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def gpu_playground(nodes=2, gpus=2):
    """An embedded API with nodes of our agent."""
    with Playground() as playground:
        for at in range(nodes):
            node = builders.node(f"n{at}", gpus)
            meta = {"name": node.name, "annotations": {GPUS: write_gpus(node)}}
            playground.create("nodes", {"metadata": meta})
        yield playground


class Command:
    """The command, started; it is ended at the end of the block."""

    def __init__(self, master, *flags, environment=None):
        self.port = free_port()
        self.lines = []
        command = [sys.executable, "-c", _CODE, "extender", f"--address=127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(
            [*command, f"--master={master}", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line)
                self._said.notify_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self._reader.join()
            self.process.stdout.close()

    def wait_said(self, words, seconds=60):
        """Return once a line of the log has these words."""
        with self._said:
            found = self._said.wait_for(lambda: any(words in each for each in self.lines), seconds)
        assert found, f"never said {words!r}: {''.join(self.lines)[-2000:]}"

    @property
    def alive(self):
        return self.process.poll() is None

    def rss_mib(self):
        """How much memory the process has."""
        fields = Path(f"/proc/{self.process.pid}/statm").read_text().split()
        return int(fields[1]) * 4096 / (1 << 20)


def event_of(line):
    """What a line of the log is about."""
    return json.loads(line)["event"]
