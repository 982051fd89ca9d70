import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicewise.model import TrustPolicy
from slicewise.trust import SigningKey, TrustDocument, TrustError, read_trust, write_trust

KEY = SigningKey(bytes(range(32)))
SECONDS = st.integers(0, 4_000_000_000)
NODES = st.lists(st.text("abc*-", min_size=1, max_size=8)).map(tuple)
POLICIES = st.one_of(
    st.builds(TrustPolicy, st.none(), st.none(), NODES),
    st.builds(TrustPolicy, SECONDS, st.none() | SECONDS, NODES),
)
KEYS = st.dictionaries(st.text(max_size=6), st.text(max_size=6))


@given(st.builds(TrustDocument, KEYS, POLICIES))
def test_what_is_written_is_read_back(document):
    assert read_trust(write_trust(document)) == document


def test_empty_configmap_believes_nobody():
    assert read_trust({}) == TrustDocument()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"keys": "["}, r"keys='\[': expected a JSON object"),
        ({"keys": "[]"}, r"keys='\[\]': expected a JSON object"),
        ({"keys": '{"a":1}'}, r"keys\.a=1: expected a public key"),
        ({"takeover": '{"began":"soon"}'}, r"takeover\.began='soon': expected a time like"),
        ({"takeover": '{"began":"2030-01-01"}'}, r"takeover\.began='2030-01-01': expected"),
        ({"takeover": '{"began":7}'}, r"takeover\.began=7: expected a time"),
        ({"takeover": '{"ended":"2030-01-01T00:00:00Z"}'}, r"takeover\.began=None: expected"),
    ],
)
def test_mistake_is_named_with_its_field_and_value(data, words):
    with pytest.raises(TrustError, match=words):
        read_trust(data)
