"""The webhook's answers: a judgement, less those who are exempt, as the actions want it.

Nothing is answered that the API server could not ask; when it cannot be told who is exempt, the
request fails and the registration's failure policy decides.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import structlog

from slicewise.admission.decisions import AdmissionJudge
from slicewise.admission.policies import EXEMPTING, MARK_RIGHT
from slicewise.admission.review import Question, ReviewError, read_question, write_answer
from slicewise.httpd import Answer, HttpRequest, HttpResponse, Router, json_response
from slicewise.httpd.router import POST, BodyRule
from slicewise.kube.access_reviews import ResourceAttributes, User
from slicewise.kube.errors import KubeError

_log = structlog.get_logger(__name__)
# A pod and the one it replaces, each as large as the API server stores it.
_MOST_BYTES: Final = 8 << 20
_GROUP, _RESOURCE, _VERB = MARK_RIGHT
_EXEMPTION: Final = ResourceAttributes(verb=_VERB, resource=_RESOURCE, group=_GROUP)


class Rights(Protocol):
    """Whom the API server permits what."""

    async def permits(self, user: User, wanted: ResourceAttributes) -> bool: ...


class AdmissionWebhook:
    """One path for each policy, by its short name."""

    def __init__(self, judge: AdmissionJudge, rights: Rights, actions: Sequence[str]) -> None:
        self._judge = judge
        self._rights = rights
        self._actions = frozenset(actions)
        self.router = Router()
        for short in judge.names:
            body = BodyRule(_MOST_BYTES, json=True)
            self.router.add(f"/{short}", self._review, POST, body=body)

    async def _review(self, request: HttpRequest) -> Answer:
        short = request.path.removeprefix("/")
        try:
            question = read_question(request.body)
            return json_response(await self._answer(short, question))
        except ReviewError as error:
            return HttpResponse(400, f"{error}\n".encode())
        except KubeError as error:
            _log.warning("request not judged", policy=short, error=str(error))
            return HttpResponse(503, f"{error}\n".encode())

    async def _answer(self, short: str, question: Question) -> dict[str, object]:
        found = self._judge.judge(short, question)
        if not found.words or await self._exempts(short, question):
            return write_answer(question, patches=found.patches)
        return write_answer(
            question,
            denied=(*found.status, found.words) if "Deny" in self._actions else None,
            warnings=(found.words,) if "Warn" in self._actions else (),
            audit=found.words if "Audit" in self._actions else "",
        )

    async def _exempts(self, short: str, question: Question) -> bool:
        return short in EXEMPTING and await self._rights.permits(
            question.user_info.user, _EXEMPTION
        )
