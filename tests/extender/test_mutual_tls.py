"""Mutual TLS as `slicewise extender` serves it, with files that change while it runs."""

import http.client
import json
import os
import socket
import ssl
import threading
import time

import pytest
import trustme

from extender import bodies
from extender.commanding import Command, free_port, gpu_playground

SHARE = {"slicewise.io/cores": 30, "slicewise.io/memory": 4096}
PROBES = ["/healthz", "/livez", "/readyz", "/leadz"]
PATHS = [*PROBES, "/metrics", "/version", "/filter", "/scheduler/status"]


class Files:
    """The files of a listener, replaced as the kubelet replaces those of a Secret."""

    def __init__(self, folder):
        self.folder = folder
        self.authority, self.clients = trustme.CA(), trustme.CA()
        self.write()

    def write(self):
        leaf = self.authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        for name, content in (
            ("key.pem", leaf.private_key_pem.bytes()),
            ("cert.pem", chain),
            ("ca.pem", self.clients.cert_pem.bytes()),
        ):
            (self.folder / f"{name}.new").write_bytes(content)
            os.replace(self.folder / f"{name}.new", self.folder / name)

    @property
    def flags(self):
        pairs = (("cert", "cert.pem"), ("key", "key.pem"), ("client-ca", "ca.pem"))
        return [f"--tls-{flag}={self.folder / name}" for flag, name in pairs]

    def context(self, identity=None):
        """How a client trusts this server, and shows itself."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if identity is not None:
            identity.configure_cert(context)
        return context


def ask(port, context, path="/filter", body=None):
    """Status, body and the certificate shown; raises what TLS raises."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=20)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, headers)
        shown = connection.sock.getpeercert(binary_form=True)
        response = connection.getresponse()
        return response.status, response.read(), shown
    finally:
        connection.close()


def wait_ready(command, context):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if ask(command.port, context, "/leadz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("".join(command.lines)[-2000:])


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    files, health = Files(tmp_path_factory.mktemp("tls")), free_port()
    flags = [*files.flags, f"--health-address=127.0.0.1:{health}", "--log-level=error"]
    with gpu_playground() as playground, Command(playground.url, *flags) as command:
        command.health, command.files = health, files
        command.identity = files.clients.issue_cert("scheduler@example.com")
        wait_ready(command, files.context(command.identity))
        yield command


@pytest.mark.parametrize("path", PATHS)
def test_without_a_certificate_nothing_is_served_not_even_health(serving, path):
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(serving.port, serving.files.context(), path)


@pytest.mark.parametrize("path", PATHS)
def test_certificate_of_another_authority_is_refused(serving, path):
    stranger = trustme.CA().issue_cert("scheduler@example.com")

    with pytest.raises((ssl.SSLError, ConnectionError)):
        ask(serving.port, serving.files.context(stranger), path)


def test_plain_http_is_not_served(serving):
    with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

        assert not line.recv(100).startswith(b"HTTP/")


def test_right_certificate_is_served(serving):
    body = bodies.args(bodies.pod(SHARE), names=["n0", "n1"])

    status, reply, _ = ask(serving.port, serving.files.context(serving.identity), body=body)

    assert status == 200
    assert json.loads(reply)["NodeNames"] == ["n0", "n1"]


@pytest.mark.parametrize(
    ("path", "status"),
    [(path, 200 if path in (*PROBES, "/metrics", "/version") else 404) for path in PATHS],
)
def test_plain_port_answers_probes_and_prometheus_and_nothing_else(serving, path, status):
    connection = http.client.HTTPConnection("127.0.0.1", serving.health, timeout=10)
    connection.request("GET", path)

    assert connection.getresponse().status == status
    connection.close()


def test_files_replaced_under_load_are_picked_up_and_no_request_is_dropped(tmp_path):
    files = Files(tmp_path)
    old = files.clients.issue_cert("scheduler@example.com")
    flags = [*files.flags, "--log-level=error"]
    with gpu_playground() as playground, Command(playground.url, *flags) as command:
        wait_ready(command, files.context(old))
        before = ask(command.port, files.context(old), "/version")[2]
        load = Load(command.port, files.context(old))
        with load:
            load.wait_more(30)
            # The old clients' authority stays among those believed, as in a rotation.
            files.write()
            wait_for(lambda: ask(command.port, files.context(old), "/version")[2] != before)
            load.wait_more(30)

        assert load.failures == []


def test_client_of_a_withdrawn_authority_is_refused_and_one_of_the_new_is_served(tmp_path):
    files = Files(tmp_path)
    old = files.clients.issue_cert("scheduler@example.com")
    flags = [*files.flags, "--log-level=error"]
    with gpu_playground() as playground, Command(playground.url, *flags) as command:
        wait_ready(command, files.context(old))
        files.clients = trustme.CA()
        new = files.clients.issue_cert("scheduler@example.com")
        files.write()

        wait_for(lambda: served(command.port, files.context(new)))
        assert not served(command.port, files.context(old))


def served(port, context):
    try:
        return ask(port, context, "/version")[0] == 200
    except OSError:
        return False


def wait_for(reached):
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


class Load:
    """Requests one after another, on connections that are kept and on new ones."""

    def __init__(self, port, context):
        self._port, self._context = port, context
        self._body = bodies.args(bodies.pod(SHARE), names=["n0", "n1"])
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(kept,)) for kept in (True, False)]
        self.answers, self.failures = 0, []

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_more(self, count):
        """Return once so many more were answered."""
        end = self.answers + count
        wait_for(lambda: self.answers >= end or self.failures)

    def _ask(self, kept):
        line = self._connect()
        while not self._stop.is_set():
            try:
                line.request("POST", "/filter", self._body, {"Content-Type": "application/json"})
                response = line.getresponse()
                response.read()
                if response.status != 200:
                    self.failures.append(response.status)
                self.answers += 1
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            if not kept:
                line.close()
                line = self._connect()
        line.close()

    def _connect(self):
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=20
        )
