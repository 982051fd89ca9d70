import http.client
import ssl

import pytest
import trustme

from slicewise.httpd import ServerSettings, Tls, json_response
from slicewise.httpd.certificates import CertificateReloader
from slicewise_playground.threaded_server import ThreadedServer


@pytest.fixture
def ca():
    return trustme.CA()


def write(folder, ca, name="127.0.0.1", client_ca=None):
    leaf = ca.issue_cert(name)
    leaf.private_key_pem.write_to_path(folder / "key.pem")
    certificate = folder / "cert.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    if client_ca is not None:
        client_ca.cert_pem.write_to_path(folder / "ca.pem")
    return Tls(
        certificate,
        folder / "key.pem",
        client_ca=folder / "ca.pem" if client_ca else None,
        require_client=client_ca is not None,
    )


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


async def answer(request):
    return json_response({"common": request.peer.common_name if request.peer else None})


def ask(server, trusted, identity=None):
    context = ssl.create_default_context()
    trusted.configure_trust(context)
    if identity is not None:
        identity.configure_cert(context)
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=10)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("slicewise.httpd.certificates._PAUSE", 0.0)


def test_replaced_certificate_is_shown_without_a_restart(tmp_path, ca, quick):
    other = trustme.CA()
    with ThreadedServer(answer, ServerSettings(tls=write(tmp_path, ca))) as server:
        assert ask(server, ca) == b'{"common":null}'
        write(tmp_path, other)

        assert ask(server, other) == b'{"common":null}'
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server, ca)


def test_replaced_client_authority_is_believed_and_the_old_one_is_not(tmp_path, ca, quick):
    old, new = trustme.CA(), trustme.CA()
    with ThreadedServer(answer, ServerSettings(tls=write(tmp_path, ca, client_ca=old))) as server:
        ask(server, ca, old.issue_cert("client@example.com"))
        new.cert_pem.write_to_path(tmp_path / "ca.pem")

        ask(server, ca, new.issue_cert("client@example.com"))
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            ask(server, ca, old.issue_cert("client@example.com"))


def test_nothing_is_served_without_a_client_certificate(tmp_path, ca):
    with (
        ThreadedServer(answer, ServerSettings(tls=write(tmp_path, ca, client_ca=ca))) as server,
        pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)),
    ):
        ask(server, ca)


def test_broken_files_leave_the_old_certificate(tmp_path, ca):
    certificates = CertificateReloader(write(tmp_path, ca), Clock())
    before = certificates.current
    (tmp_path / "cert.pem").write_text("half written")

    assert not certificates.refresh()
    assert certificates.current is before


def test_unchanged_files_are_not_read_again(tmp_path, ca):
    certificates = CertificateReloader(write(tmp_path, ca), Clock())

    assert not certificates.refresh()
