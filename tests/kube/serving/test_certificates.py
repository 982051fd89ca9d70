import asyncio
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from slicewise.httpd import ServerSettings, Tls, json_response
from slicewise.kube.errors import LostError
from slicewise.kube.secrets import Secret
from slicewise.kube.serving.certificate_manager import CertificateManager, CertificateSettings
from slicewise.kube.serving.certificates import (
    KeyPair,
    ServerIdentity,
    authority_lasts,
    is_valid,
    make_authority,
    make_server,
    read_identity,
    renew,
    write_identity,
)
from slicewise.kube.watch import Gone, Seen
from slicewise_playground.threaded_server import ThreadedServer

HOST = "nvidia-gpu-scheduler.kube-system.svc"
NOW = datetime(2026, 1, 5, tzinfo=UTC)
YEAR = timedelta(days=365)


@pytest.fixture(scope="module")
def identity():
    return renew(None, HOST, NOW)


def test_identity_is_what_the_contract_says(identity):
    ca = x509.load_pem_x509_certificate(identity.authority.certificate)
    server = x509.load_pem_x509_certificate(identity.server.certificate)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert ca.subject.rfc4514_string() == "CN=webhook-cert-ca"
    assert ca.issuer == ca.subject == server.issuer
    assert ca.public_key().key_size == server.public_key().key_size == 2048
    assert server.subject.rfc4514_string() == f"CN={HOST}"
    assert names.get_values_for_type(x509.DNSName) == ["localhost", HOST]
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    assert server.not_valid_after_utc - NOW == timedelta(days=3650)


def test_identity_survives_its_secret(identity):
    data = write_identity(identity)

    assert set(data) == {"ca-key.pem", "ca-cert.pem", "key.pem", "tls.key", "cert.pem", "tls.crt"}
    assert data["key.pem"] == data["tls.key"]
    assert data["cert.pem"] == data["tls.crt"]
    assert read_identity(data) == identity


@pytest.mark.parametrize(
    ("host", "now", "valid"),
    [
        pytest.param(HOST, NOW, True, id="fresh"),
        pytest.param("other.kube-system.svc", NOW, False, id="other-name"),
        pytest.param(HOST, NOW + 9 * YEAR, True, id="nine-years-on"),
        pytest.param(HOST, NOW + 9.6 * YEAR, False, id="less-than-half-a-year-left"),
        pytest.param(HOST, NOW - YEAR, False, id="not-yet"),
    ],
)
def test_certificate_must_verify_half_a_year_from_now(identity, host, now, valid):
    assert is_valid(identity, host, now) is valid


def test_certificate_of_another_authority_or_key_is_not_valid(identity):
    other = renew(None, HOST, NOW)

    assert not is_valid(ServerIdentity(other.authority, identity.server), HOST, NOW)
    assert not is_valid(
        ServerIdentity(identity.authority, KeyPair(identity.server.certificate, other.server.key)),
        HOST,
        NOW,
    )
    assert not is_valid(ServerIdentity(identity.authority, KeyPair(b"no", b"no")), HOST, NOW)


def test_authority_is_kept_while_it_lasts_another_year(identity):
    kept = renew(identity, HOST, NOW + 8.9 * YEAR)
    replaced = renew(identity, HOST, NOW + 9.1 * YEAR)

    assert kept.authority == identity.authority
    assert kept.server != identity.server
    assert replaced.authority != identity.authority
    assert replaced.trusted == replaced.authority.certificate + identity.authority.certificate
    assert is_valid(replaced, HOST, NOW + 9.1 * YEAR)


def test_authority_without_its_key_signs_nothing(identity):
    assert authority_lasts(identity.authority, NOW)
    assert not authority_lasts(KeyPair(identity.authority.certificate, b""), NOW)


@pytest.mark.parametrize("missing", ["ca-cert.pem", "cert.pem", "key.pem"])
def test_incomplete_secret_is_no_identity(identity, missing):
    data = write_identity(identity)
    del data[missing]

    assert read_identity(data) is None


def test_long_service_names_fit_into_a_certificate():
    host = f"{'a' * 63}.{'b' * 63}.svc"
    authority = make_authority(NOW)

    assert is_valid(ServerIdentity(authority, make_server(authority, host, NOW)), host, NOW)


class Vault:
    """A Secret in memory that others may write as well."""

    def __init__(self, data=None):
        self.secret = None if data is None else Secret(data, "1")
        self.writes = 0
        self.rivals = []

    async def read(self):
        return self.secret

    async def write(self, data, version):
        if self.rivals:
            self.secret = Secret(self.rivals.pop(), "9")
            return False
        found = None if self.secret is None else self.secret.version
        if version != found:
            return False
        self.writes += 1
        self.secret = Secret(data, str(self.writes + 1))
        return True


class Registry:
    """What the API server was told to believe, in order."""

    def __init__(self):
        self.told = []

    async def __call__(self, authorities):
        self.told.append(authorities)


def keep(vault, folder, registry=None, now=NOW):
    keeping = CertificateSettings(
        host=HOST, folder=folder, overlap_seconds=0.0, check_seconds=1000.0
    )
    return CertificateManager(vault, registry or Registry(), keeping, now=lambda: now)


async def turn(keeper, until):
    """The keeper at work until a condition holds."""
    task = asyncio.create_task(keeper.run())
    async with asyncio.timeout(30):
        while not until():
            await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_first_start_makes_the_secret_and_registers(tmp_path):
    vault, registry = Vault(), Registry()

    async def begin():
        keeper = keep(vault, tmp_path, registry)
        await keeper.begin()
        await turn(keeper, lambda: registry.told)
        return keeper

    keeper = asyncio.run(begin())

    assert read_identity(vault.secret.data) == keeper.identity
    assert registry.told == [keeper.identity.authority.certificate]
    assert keeper.file.stat().st_mode & 0o077 == 0


def test_valid_secret_is_used_as_it_is(tmp_path, identity):
    vault = Vault(write_identity(identity))
    keeper = keep(vault, tmp_path)

    asyncio.run(keeper.begin())

    assert keeper.identity == identity
    assert vault.writes == 0


def test_expiring_certificate_is_renewed_under_its_authority(tmp_path, identity):
    old = ServerIdentity(
        identity.authority, make_server(identity.authority, HOST, NOW, timedelta(days=100))
    )
    vault = Vault(write_identity(old))
    keeper = keep(vault, tmp_path)

    asyncio.run(keeper.begin())

    assert keeper.identity.authority == identity.authority
    assert keeper.identity.server != old.server
    assert vault.writes == 1


def test_replica_that_was_slower_takes_the_others_identity(tmp_path, identity):
    vault = Vault()
    vault.rivals = [write_identity(identity)]
    keeper = keep(vault, tmp_path)

    asyncio.run(keeper.begin())

    assert keeper.identity == identity


def test_new_authority_is_believed_before_it_is_used(tmp_path, identity):
    vault, registry = Vault(write_identity(identity)), Registry()
    other = renew(None, HOST, NOW)
    shown = []

    async def rotate():
        keeper = keep(vault, tmp_path, registry)
        await keeper.begin()

        async def told(authorities):
            registry.told.append(authorities)
            shown.append(keeper.identity)

        keeper._register = told
        vault.secret = Secret(write_identity(other), "5")
        keeper.take([Seen(vault.secret)])
        await turn(keeper, lambda: len(registry.told) > 1)
        return keeper

    keeper = asyncio.run(rotate())

    both = other.authority.certificate + identity.authority.certificate
    assert registry.told[:2] == [both, other.authority.certificate]
    assert shown[:2] == [identity, other]
    assert keeper.file.read_bytes() == other.server.certificate + other.server.key


def test_deleted_secret_is_followed_by_another_authority_that_names_the_former(tmp_path, identity):
    vault = Vault(write_identity(identity))

    async def rotate():
        keeper = keep(vault, tmp_path)
        await keeper.begin()
        vault.secret = None
        keeper.take([Gone("nvidia-gpu-scheduler", 7)])
        await turn(keeper, lambda: keeper.identity != identity)
        return keeper

    keeper = asyncio.run(rotate())

    assert keeper.identity.authority != identity.authority
    assert keeper.identity.former == identity.authority.certificate
    assert is_valid(keeper.identity, HOST, NOW)


def test_former_authority_is_dropped_after_a_day(tmp_path, identity):
    old = renew(None, HOST, NOW - 10 * YEAR)
    both = renew(old, HOST, NOW)
    vault = Vault(write_identity(both))
    keeper = keep(vault, tmp_path, now=NOW + timedelta(days=2))

    asyncio.run(keeper.begin())

    assert both.former
    assert keeper.identity == ServerIdentity(both.authority, both.server)


def test_registration_that_fails_is_tried_again(tmp_path, identity, monkeypatch):
    monkeypatch.setattr("slicewise.kube.serving.certificate_manager._RETRY_SECONDS", 0.01)
    tries = []

    async def register(authorities):
        tries.append(authorities)
        if len(tries) < 3:
            raise LostError("not yet")

    async def begin():
        keeper = keep(Vault(write_identity(identity)), tmp_path, register)
        await keeper.begin()
        await turn(keeper, lambda: len(tries) > 2)

    asyncio.run(begin())

    assert tries == [identity.authority.certificate] * 3


def test_certificate_serves_its_service_name(tmp_path):
    fresh = renew(None, HOST, datetime.now(UTC))
    file = tmp_path / "server.pem"
    file.write_bytes(fresh.server.certificate + fresh.server.key)

    async def answer(request):
        return json_response({})

    context = ssl.create_default_context(cadata=fresh.trusted.decode())
    with ThreadedServer(answer, ServerSettings(tls=Tls(file, file))) as server:
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=10)
        with context.wrap_socket(plain, server_hostname=HOST) as line:
            assert line.getpeercert()["subject"] == ((("commonName", HOST),),)
