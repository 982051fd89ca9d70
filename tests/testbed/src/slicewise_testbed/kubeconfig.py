"""Kubeconfig files of a testbed: written in its folder, never the user's own."""

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path

import yaml

from slicewise_testbed.certificates import Pair


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One user's way to the API server: the file, and the same facts for a client in Python."""

    path: Path
    server: str
    authority: Path
    user: Pair

    def tls(self) -> ssl.SSLContext:
        """A context that trusts the testbed's authority and presents the user's certificate."""
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.user.certificate, self.user.key)
        return context


def write_kubeconfig(path: Path, server: str, authority: Path, user: Pair) -> Kubeconfig:
    """The kubeconfig, with all certificates inside the file."""
    cluster = {"server": server, "certificate-authority-data": _inline(authority)}
    credentials = {
        "client-certificate-data": _inline(user.certificate),
        "client-key-data": _inline(user.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": cluster}],
        "users": [{"name": "testbed", "user": credentials}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
        "current-context": "testbed",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return Kubeconfig(path, server, authority, user)


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
