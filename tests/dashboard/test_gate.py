import asyncio

import pytest

from slicewise.dashboard.gate import LocalGate, TokenGate, Verdict
from slicewise.httpd import Request
from slicewise.model import SlicewiseError


def request(**headers):
    return Request("GET", "/api/feed", {}, headers, b"", gone=None)


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        ("127.0.0.1:8484", Verdict.WELCOME),
        ("localhost", Verdict.WELCOME),
        ("[::1]:8484", Verdict.WELCOME),
        ("[::1]", Verdict.WELCOME),
        ("evil.example:8484", Verdict.FORBIDDEN),
        ("10.0.0.7", Verdict.FORBIDDEN),
        ("", Verdict.FORBIDDEN),
    ],
)
def test_loopback_answers_to_names_of_this_machine_alone(host, verdict):
    assert asyncio.run(LocalGate().judge(request(host=host))) is verdict


class Check:
    """What the API server says of tokens, counted."""

    def __init__(self, **verdicts):
        self.verdicts = verdicts
        self.asked = 0

    async def __call__(self, token):
        self.asked += 1
        verdict = self.verdicts.get(token, Verdict.UNKNOWN)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


@pytest.mark.parametrize(
    ("header", "verdict"),
    [
        pytest.param("Bearer good", Verdict.WELCOME, id="known"),
        pytest.param("bearer good", Verdict.WELCOME, id="any-case"),
        pytest.param("Bearer weak", Verdict.FORBIDDEN, id="without-rights"),
        pytest.param("Bearer other", Verdict.UNKNOWN, id="nobody's"),
        pytest.param("Basic good", Verdict.UNKNOWN, id="other-scheme"),
        pytest.param("Bearer ", Verdict.UNKNOWN, id="empty"),
        pytest.param("", Verdict.UNKNOWN, id="none"),
    ],
)
def test_token_is_judged_as_the_api_server_says(header, verdict):
    gate = TokenGate(Check(good=Verdict.WELCOME, weak=Verdict.FORBIDDEN))

    assert asyncio.run(gate.judge(request(authorization=header))) is verdict


def test_answer_is_remembered_for_a_while_and_then_asked_again():
    now = [0.0]
    check = Check(t=Verdict.WELCOME)
    gate = TokenGate(check, seconds=10, clock=lambda: now[0])

    async def judge():
        return await gate.judge(request(authorization="Bearer t"))

    assert asyncio.run(judge()) is asyncio.run(judge()) is Verdict.WELCOME
    check.verdicts["t"] = Verdict.UNKNOWN
    now[0] = 9.9
    assert asyncio.run(judge()) is Verdict.WELCOME
    now[0] = 10.1
    assert asyncio.run(judge()) is Verdict.UNKNOWN
    assert check.asked == 2


def test_failure_to_ask_is_not_remembered():
    check = Check(t=SlicewiseError("gone"))
    gate = TokenGate(check)

    assert asyncio.run(gate.judge(request(authorization="Bearer t"))) is Verdict.UNSURE
    check.verdicts["t"] = Verdict.WELCOME
    assert asyncio.run(gate.judge(request(authorization="Bearer t"))) is Verdict.WELCOME
