import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.model import SignatureState, TrustPolicy
from slicewise.trust import SigningKey, TrustDocument, TrustError, TrustStore

KEY = SigningKey(bytes(range(32)))
OTHER = SigningKey(bytes(range(1, 33)))
SIGNED = KEY.sign("u", "text")


def store(*keys: SigningKey, private: bool = False) -> TrustStore:
    made = TrustStore()
    made.take(TrustDocument({key.id: key.public for key in keys}))
    made.hold(keys if private else ())
    return made


@given(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9) | st.just(SIGNED))
def test_private_keys_verify_as_public_keys_do(uid, text, signature):
    public, private = store(KEY), store(KEY, private=True)

    assert private.verify(uid, text, signature) is public.verify(uid, text, signature)


def test_code_is_worth_nothing_to_those_without_the_private_key():
    forged = ".".join((KEY.id, OTHER.sign("u", "text").split(".")[1], SIGNED.split(".")[2]))

    assert store(KEY).verify("u", "text", forged) is SignatureState.WRONG


def test_signature_without_its_code_is_verified_by_the_public_key():
    bare = SIGNED.rpartition(".")[0]

    assert store(KEY, private=True).verify("u", "text", bare) is SignatureState.VALID


@pytest.mark.parametrize("private", [False, True])
def test_signature_counts_only_while_its_key_is_published(private):
    trust = store(KEY, private=private)
    before = trust.verify("u", "text", SIGNED)

    trust.take(TrustDocument({OTHER.id: OTHER.public}))

    assert (before, trust.verify("u", "text", SIGNED)) == (
        SignatureState.VALID,
        SignatureState.UNKNOWN_KEY,
    )


@pytest.mark.parametrize("private", [False, True])
def test_remembered_signature_is_none_of_another_record(private):
    trust = store(KEY, private=private)
    trust.verify("u", "text", SIGNED)

    assert trust.verify("u", "other", SIGNED) is SignatureState.WRONG
    assert trust.verify("v", "text", SIGNED) is SignatureState.WRONG
    assert trust.verify("u", "\ud800", SIGNED) is SignatureState.WRONG


def test_document_that_cannot_be_used_changes_nothing():
    trust = store(KEY)

    with pytest.raises(TrustError, match="expected the name"):
        trust.take(TrustDocument({"wrong": KEY.public}, TrustPolicy(takeover_began=1)))

    assert trust.policy == TrustPolicy()
    assert trust.verify("u", "text", SIGNED) is SignatureState.VALID
