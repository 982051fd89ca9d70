import asyncio

import pytest

from slicewise.dashboard.auth import AccessDecision, LoopbackAuthorizer, TokenAuthorizer
from slicewise.httpd import HttpRequest
from slicewise.model import SlicewiseError


def request(**headers):
    return HttpRequest("GET", "/api/feed", {}, headers, b"", gone=None)


@pytest.mark.parametrize(
    ("host", "decision"),
    [
        ("127.0.0.1:8484", AccessDecision.ALLOWED),
        ("localhost", AccessDecision.ALLOWED),
        ("[::1]:8484", AccessDecision.ALLOWED),
        ("[::1]", AccessDecision.ALLOWED),
        ("evil.example:8484", AccessDecision.FORBIDDEN),
        ("10.0.0.7", AccessDecision.FORBIDDEN),
        ("", AccessDecision.FORBIDDEN),
    ],
)
def test_loopback_answers_to_names_of_this_machine_alone(host, decision):
    assert asyncio.run(LoopbackAuthorizer().decide(request(host=host))) is decision


class Check:
    """What the API server says of tokens, counted."""

    def __init__(self, **decision):
        self.decision = decision
        self.asked = 0

    async def __call__(self, token):
        self.asked += 1
        decision = self.decision.get(token, AccessDecision.UNAUTHENTICATED)
        if isinstance(decision, Exception):
            raise decision
        return decision


@pytest.mark.parametrize(
    ("header", "decision"),
    [
        pytest.param("Bearer good", AccessDecision.ALLOWED, id="known"),
        pytest.param("bearer good", AccessDecision.ALLOWED, id="any-case"),
        pytest.param("Bearer weak", AccessDecision.FORBIDDEN, id="without-rights"),
        pytest.param("Bearer other", AccessDecision.UNAUTHENTICATED, id="nobody's"),
        pytest.param("Basic good", AccessDecision.UNAUTHENTICATED, id="other-scheme"),
        pytest.param("Bearer ", AccessDecision.UNAUTHENTICATED, id="empty"),
        pytest.param("", AccessDecision.UNAUTHENTICATED, id="none"),
    ],
)
def test_token_is_judged_as_the_api_server_says(header, decision):
    authorizer = TokenAuthorizer(Check(good=AccessDecision.ALLOWED, weak=AccessDecision.FORBIDDEN))

    assert asyncio.run(authorizer.decide(request(authorization=header))) is decision


def test_answer_is_remembered_for_a_while_and_then_asked_again():
    now = [0.0]
    check = Check(t=AccessDecision.ALLOWED)
    authorizer = TokenAuthorizer(check, seconds=10, clock=lambda: now[0])

    async def decide():
        return await authorizer.decide(request(authorization="Bearer t"))

    assert asyncio.run(decide()) is asyncio.run(decide()) is AccessDecision.ALLOWED
    check.decision["t"] = AccessDecision.UNAUTHENTICATED
    now[0] = 9.9
    assert asyncio.run(decide()) is AccessDecision.ALLOWED
    now[0] = 10.1
    assert asyncio.run(decide()) is AccessDecision.UNAUTHENTICATED
    assert check.asked == 2


def test_failure_to_ask_is_not_remembered():
    check = Check(t=SlicewiseError("gone"))
    authorizer = TokenAuthorizer(check)

    assert (
        asyncio.run(authorizer.decide(request(authorization="Bearer t")))
        is AccessDecision.UNAVAILABLE
    )
    check.decision["t"] = AccessDecision.ALLOWED
    assert (
        asyncio.run(authorizer.decide(request(authorization="Bearer t"))) is AccessDecision.ALLOWED
    )
