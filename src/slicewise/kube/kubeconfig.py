"""Reading a kubeconfig: the same files, variables and users that kubectl accepts.

Supported are certificates and tokens, in the file or beside it, and commands that print a token.
"""

import base64
import binascii
import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from slicewise.kube.credentials import (
    Access,
    CommandToken,
    FileToken,
    FixedToken,
    Token,
    read_in_cluster,
)
from slicewise.kube.errors import AccessError


def find_access(kubeconfig: Path | None = None, context: str | None = None) -> Access:
    """The kubeconfig given, that of KUBECONFIG, the pod we run in, or ~/.kube/config."""
    if kubeconfig is not None:
        return read_kubeconfig(kubeconfig, context)
    # Of several files the first that exists is taken whole; kubectl would merge them.
    for part in os.environ.get("KUBECONFIG", "").split(os.pathsep):
        if part and Path(part).exists():
            return read_kubeconfig(Path(part), context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return read_in_cluster()
    home = Path.home() / ".kube" / "config"
    if not home.exists():
        raise AccessError("no API server: not in a cluster and no kubeconfig; pass --kubeconfig")
    return read_kubeconfig(home, context)


def read_kubeconfig(
    path: Path, context: str | None = None, now: Callable[[], datetime] | None = None
) -> Access:
    """The cluster and user of a context, by default of the current one."""
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise AccessError(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise AccessError(f"{path}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise AccessError(f"{path}: expected a kubeconfig")
    chosen = context or document.get("current-context")
    if not chosen:
        raise AccessError(f"{path}: no current-context; pass one")
    scene = _find(path, document, "contexts", chosen)
    cluster = _find(path, document, "clusters", scene.get("cluster"))
    user = _find(path, document, "users", scene["user"]) if scene.get("user") else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("http://", "https://")):
        raise AccessError(f"{path}: server={server!r}: expected an http or https address")
    return Access(
        server=server,
        tls=_read_tls(path, cluster, user) if server.startswith("https://") else None,
        token=_read_token(path, user, now or (lambda: datetime.now(UTC))),
        server_name=cluster.get("tls-server-name"),
        namespace=scene.get("namespace") or "default",
    )


def _find(path: Path, document: Mapping[str, Any], kind: str, name: object) -> dict[str, Any]:
    for entry in document.get(kind) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry.get(kind.removesuffix("s")) or {}
    raise AccessError(f"{path}: no {kind.removesuffix('s')} {name!r}")


def _read_tls(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _read_bytes(path, cluster, "certificate-authority")
    certificate = _read_bytes(path, user, "client-certificate")
    key = _read_bytes(path, user, "client-key")
    try:
        tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if certificate is not None and key is not None:
            with _kept(certificate) as certificate_file, _kept(key) as key_file:
                tls.load_cert_chain(certificate_file, key_file)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise AccessError(f"{path}: certificates cannot be used: {error}") from error
    return tls


def _read_token(path: Path, user: Mapping[str, Any], now: Callable[[], datetime]) -> Token | None:
    if user.get("tokenFile"):
        return FileToken(path.parent / str(user["tokenFile"]))
    if user.get("token"):
        return FixedToken(str(user["token"]))
    command = user.get("exec")
    if isinstance(command, dict):
        argv = [str(command.get("command") or ""), *map(str, command.get("args") or ())]
        if os.sep in argv[0]:
            argv[0] = str(path.parent / argv[0])
        pairs = command.get("env") or ()
        environment = {str(pair["name"]): str(pair["value"]) for pair in pairs}
        version = str(command.get("apiVersion") or "client.authentication.k8s.io/v1")
        return CommandToken(argv, environment, version, now)
    if user.get("auth-provider"):
        raise AccessError(f"{path}: auth-provider is not supported; use exec or a token")
    return None


def _read_bytes(path: Path, part: Mapping[str, Any], key: str) -> bytes | None:
    inline = part.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except binascii.Error as error:
            raise AccessError(f"{path}: {key}-data: not base64: {error}") from error
    if not part.get(key):
        return None
    beside = path.parent / str(part[key])
    try:
        return beside.read_bytes()
    except OSError as error:
        raise AccessError(f"{path}: cannot read {key} {beside}: {error.strerror}") from error


@contextlib.contextmanager
def _kept(content: bytes) -> Iterator[str]:
    """The content in a file for a moment, since the ssl module reads certificates from files."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield file.name
