import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from slicewise.trust import (
    SigningKey,
    SigningKeys,
    StoredKey,
    TrustError,
    read_key_file,
    read_keyring,
    write_keyring,
)

OLD, NEW = (StoredKey(SigningKey(bytes([at] * 32)), created) for at, created in ((1, 0), (2, 1000)))


class Clock:
    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


def signing(clock, *held, published=()):
    keys = SigningKeys(clock, 60.0)
    keys.update(held, {each.id for each in published})
    return keys


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_keys_are_written_and_read_back_oldest_first():
    found = read_keyring(write_keyring([NEW, OLD]))

    assert [(each.id, each.created) for each in found] == [(OLD.id, 0), (NEW.id, 1000)]


@pytest.mark.parametrize("text", [b"{}x", b"[1]", b'[{"seed":"AA==","created":1}]', b"7"])
def test_secret_that_cannot_be_read_says_what_was_expected_and_shows_no_key(text):
    with pytest.raises(TrustError, match="expected a JSON list") as caught:
        read_keyring({"keys": text})

    assert "AA==" not in str(caught.value)


def test_only_key_signs_as_soon_as_it_is_published():
    keys = signing(Clock(), NEW)
    before = keys.current

    keys.update([NEW], {NEW.id})

    assert before is None
    assert keys.current is NEW.key


def test_new_key_signs_only_when_it_was_published_for_the_overlap():
    clock = Clock()
    keys = signing(clock, OLD, published=[OLD])
    keys.update([OLD, NEW], {OLD.id})
    unpublished = keys.current
    keys.update([OLD, NEW], {OLD.id, NEW.id})

    clock.now += 59
    early = keys.current
    clock.now += 1

    assert (unpublished, early, keys.current) == (OLD.key, OLD.key, NEW.key)


def test_there_is_a_signing_key_at_every_moment_of_a_rotation():
    clock = Clock()
    keys = signing(clock, OLD, published=[OLD])
    steps = [([OLD, NEW], [OLD]), ([OLD, NEW], [OLD, NEW]), ([NEW], [OLD, NEW]), ([NEW], [NEW])]

    for held, published in steps:
        keys.update(held, {each.id for each in published})
        for _ in range(4):
            assert keys.require().id in {each.id for each in published}
            clock.now += 30


def test_restart_does_not_return_to_a_former_key():
    assert signing(Clock(2000), OLD, NEW, published=[OLD, NEW]).current is NEW.key


def test_former_key_is_retired_an_overlap_after_the_last_signature():
    clock = Clock()
    keys = signing(clock, OLD, published=[OLD])
    keys.update([OLD, NEW], {OLD.id, NEW.id})

    clock.now += 119
    early = keys.retired
    clock.now += 1

    assert (early, keys.retired) == ((), (OLD.id,))


def test_signing_before_any_key_is_published_says_so():
    with pytest.raises(TrustError, match="no signing key is published yet"):
        signing(Clock(), OLD).require()


def test_pem_file_holds_keys_newest_last():
    first, second = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()

    found = read_key_file(b"# ours\n" + pem(first) + pem(second))

    assert [each.key.seed for each in found] == [
        first.private_bytes_raw(),
        second.private_bytes_raw(),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "expected a PEM private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAA\n-----END PRIVATE KEY-----", "key 1: expected a PEM"),
        (pem(X25519PrivateKey.generate()), "key 1: expected an Ed25519 key"),
    ],
)
def test_file_that_holds_no_key_says_what_was_expected(content, words):
    with pytest.raises(TrustError, match=words):
        read_key_file(content)
