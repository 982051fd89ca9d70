import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.model import SignatureState
from slicewise.trust import PublicKeys, SigningKey, TrustError

KEY = SigningKey(bytes(range(32)))
OTHER = SigningKey(bytes(range(1, 33)))
TEXT = '{"at":1,"containers":{"c0":[[0,"GPU-0",30,4096]]},"epoch":3,"node":"n0"}'


def published(*keys: SigningKey) -> PublicKeys:
    return PublicKeys({key.id: key.public for key in keys})


def test_signature_holds_for_its_record_and_pod():
    assert published(KEY).verify("u1", TEXT, KEY.sign("u1", TEXT)) is SignatureState.VALID


@given(st.text(min_size=1), st.text())
def test_signature_holds_for_no_other_pod_or_text(uid, text):
    signature = KEY.sign("u1", TEXT)
    keys = published(KEY)

    if uid != "u1":
        assert keys.verify(uid, TEXT, signature) is SignatureState.WRONG
    if text != TEXT:
        assert keys.verify("u1", text, signature) is SignatureState.WRONG


@pytest.mark.parametrize("signature", ["", ".", "garbage", f"{KEY.id}.", f"{KEY.id}.%%%", "a.b.c"])
def test_garbage_is_no_signature(signature):
    assert published(KEY).verify("u1", TEXT, signature) is not SignatureState.VALID


def test_key_that_is_not_published_is_named_so():
    state = published(KEY).verify("u1", TEXT, OTHER.sign("u1", TEXT))

    assert state is SignatureState.UNKNOWN_KEY


def test_old_and_new_key_both_count_during_a_rotation():
    keys = published(KEY, OTHER)

    assert keys.verify("u1", TEXT, KEY.sign("u1", TEXT)) is SignatureState.VALID
    assert keys.verify("u1", TEXT, OTHER.sign("u1", TEXT)) is SignatureState.VALID


def test_published_key_under_another_name_is_refused():
    with pytest.raises(TrustError, match=f"expected the name {KEY.id}"):
        PublicKeys({OTHER.id: KEY.public})


@pytest.mark.parametrize("text", ["", "AAAA", "not base64"])
def test_unreadable_public_key_is_named(text):
    with pytest.raises(TrustError, match="expected the 32 bytes of an Ed25519 key"):
        PublicKeys({"x": text})


def test_generated_keys_differ():
    assert SigningKey.generate().id != SigningKey.generate().id


def test_signature_just_made_is_known_for_its_pod_and_text_alone():
    key = SigningKey(bytes(32))
    signature = key.sign("u1", "text")

    assert not key.made("u2", "text", signature)
    assert not key.made("u1", "other", signature)
    assert key.made("u1", "text", signature)
    assert key.made("u1", "text", signature)
