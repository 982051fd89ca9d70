import asyncio

import pytest

from slicewise.dashboard.auth import AccessDecision, LoopbackAuthorizer, TokenAuthorizer
from slicewise.httpd import HttpRequest
from slicewise.model import SlicewiseError


def request(**headers):
    return HttpRequest("GET", "/api/feed", {}, headers, b"", gone=None)


@pytest.mark.parametrize(
    ("host", "verdict"),
    [
        ("127.0.0.1:8484", AccessDecision.WELCOME),
        ("localhost", AccessDecision.WELCOME),
        ("[::1]:8484", AccessDecision.WELCOME),
        ("[::1]", AccessDecision.WELCOME),
        ("evil.example:8484", AccessDecision.FORBIDDEN),
        ("10.0.0.7", AccessDecision.FORBIDDEN),
        ("", AccessDecision.FORBIDDEN),
    ],
)
def test_loopback_answers_to_names_of_this_machine_alone(host, verdict):
    assert asyncio.run(LoopbackAuthorizer().judge(request(host=host))) is verdict


class Check:
    """What the API server says of tokens, counted."""

    def __init__(self, **verdicts):
        self.verdicts = verdicts
        self.asked = 0

    async def __call__(self, token):
        self.asked += 1
        verdict = self.verdicts.get(token, AccessDecision.UNKNOWN)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


@pytest.mark.parametrize(
    ("header", "verdict"),
    [
        pytest.param("Bearer good", AccessDecision.WELCOME, id="known"),
        pytest.param("bearer good", AccessDecision.WELCOME, id="any-case"),
        pytest.param("Bearer weak", AccessDecision.FORBIDDEN, id="without-rights"),
        pytest.param("Bearer other", AccessDecision.UNKNOWN, id="nobody's"),
        pytest.param("Basic good", AccessDecision.UNKNOWN, id="other-scheme"),
        pytest.param("Bearer ", AccessDecision.UNKNOWN, id="empty"),
        pytest.param("", AccessDecision.UNKNOWN, id="none"),
    ],
)
def test_token_is_judged_as_the_api_server_says(header, verdict):
    gate = TokenAuthorizer(Check(good=AccessDecision.WELCOME, weak=AccessDecision.FORBIDDEN))

    assert asyncio.run(gate.judge(request(authorization=header))) is verdict


def test_answer_is_remembered_for_a_while_and_then_asked_again():
    now = [0.0]
    check = Check(t=AccessDecision.WELCOME)
    gate = TokenAuthorizer(check, seconds=10, clock=lambda: now[0])

    async def judge():
        return await gate.judge(request(authorization="Bearer t"))

    assert asyncio.run(judge()) is asyncio.run(judge()) is AccessDecision.WELCOME
    check.verdicts["t"] = AccessDecision.UNKNOWN
    now[0] = 9.9
    assert asyncio.run(judge()) is AccessDecision.WELCOME
    now[0] = 10.1
    assert asyncio.run(judge()) is AccessDecision.UNKNOWN
    assert check.asked == 2


def test_failure_to_ask_is_not_remembered():
    check = Check(t=SlicewiseError("gone"))
    gate = TokenAuthorizer(check)

    assert asyncio.run(gate.judge(request(authorization="Bearer t"))) is AccessDecision.UNSURE
    check.verdicts["t"] = AccessDecision.WELCOME
    assert asyncio.run(gate.judge(request(authorization="Bearer t"))) is AccessDecision.WELCOME
