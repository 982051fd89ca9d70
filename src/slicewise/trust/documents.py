"""What the cluster is told to believe, as the data of one ConfigMap: public keys and the policy.

`keys` holds public keys by their identifiers, `takeover` when a take-over began and ended, and
`original-agents` the nodes whose agents cannot verify, one name or pattern a line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from slicewise.model import TrustPolicy
from slicewise.trust.keys import TrustError

KEYS: Final = "keys"
TAKE_OVER: Final = "takeover"
ORIGINAL_AGENTS: Final = "original-agents"
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class TrustDocument:
    """Public keys by their identifiers, and which unsigned records are believed."""

    keys: Mapping[str, str] = field(default_factory=dict)
    policy: TrustPolicy = field(default_factory=TrustPolicy)


def read_trust(data: Mapping[str, str]) -> TrustDocument:
    """The document in a ConfigMap's data; what is not there is empty."""
    keys = _read_object(KEYS, data.get(KEYS) or "{}")
    for name, text in keys.items():
        if not isinstance(text, str):
            raise _refuse(f"{KEYS}.{name}", text, "a public key in base64")
    takeover = _read_object(TAKE_OVER, data.get(TAKE_OVER) or "{}")
    began, ended = (_read_time(word, takeover.get(word)) for word in ("began", "ended"))
    if ended is not None and began is None:
        raise _refuse(f"{TAKE_OVER}.began", None, "a time, for it has ended")
    lines = (data.get(ORIGINAL_AGENTS) or "").splitlines()
    nodes = tuple(node for line in lines if (node := line.strip()))
    return TrustDocument({name: str(text) for name, text in keys.items()},
                         TrustPolicy(began, ended, nodes))  # fmt: skip


def write_trust(document: TrustDocument) -> dict[str, str]:
    """The ConfigMap's data, equal for equal documents."""
    policy = document.policy
    takeover = {
        "began": write_time(policy.takeover_began),
        "ended": write_time(policy.takeover_ended),
    }
    return {
        KEYS: json.dumps(dict(document.keys), indent=1, sort_keys=True),
        TAKE_OVER: "{}" if policy.takeover_began is None else json.dumps(takeover),
        ORIGINAL_AGENTS: "".join(f"{node}\n" for node in policy.original_nodes),
    }


def write_time(seconds: int | None) -> str | None:
    """Seconds since 1970 as people and Kubernetes write times."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_object(name: str, text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refuse(name, text, "a JSON object") from error
    if not isinstance(found, dict):
        raise _refuse(name, text, "a JSON object")
    return found


def _read_time(word: str, value: object) -> int | None:
    if value is None:
        return None
    name, expected = f"{TAKE_OVER}.{word}", "a time like 2030-01-31T12:00:00Z"
    if not isinstance(value, str):
        raise _refuse(name, value, expected)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise _refuse(name, value, expected) from error
    if moment.tzinfo is None:
        raise _refuse(name, value, expected)
    return int(moment.timestamp())


def _refuse(name: str, value: object, expected: str) -> TrustError:
    return TrustError(f"{name}={repr(value)[:_SHOWN]}: expected {expected}")
