"""The status of trust as JSON and in words."""

from collections.abc import Sequence
from typing import Any, Final

from slicewise.model import count
from slicewise.model.styled_text import align
from slicewise.state.trust_admin import TrustStatus
from slicewise.trust import write_time

_NAMED: Final = 5
_OBSTACLES: Final = 20


def write_status(status: TrustStatus) -> dict[str, Any]:
    """The status as JSON."""
    policy = status.policy
    return {
        "keys": [
            {
                "id": key.id,
                "created": write_time(key.created),
                "state": key.state,
                "pods": key.pods,
            }
            for key in status.keys
        ],
        "takeOver": {
            "began": write_time(policy.takeover_began),
            "ended": write_time(policy.takeover_ended),
            "waiting": list(status.waiting),
            "obstacles": list(status.obstacles),
        },
        "originalAgents": list(policy.original_nodes),
        "pods": {each.name.lower().replace("_", "-"): n for each, n in status.standings.items()},
        "doubtful": list(status.doubtful),
        "notes": list(status.notes),
    }


def describe_status(status: TrustStatus, now: int) -> list[str]:
    """The status for people."""
    rows = ["KEY\tAGE\tPODS\tSTATE"]
    for key in status.keys:
        age = "unknown" if key.created is None else _spell_age(now - key.created)
        rows.append(f"{key.id}\t{age}\t{key.pods}\t{key.state}")
    lines = align(rows) if status.keys else ["no key is published"]
    lines += ["", f"take-over: {_describe_take_over(status)}"]
    lines += [f"  {obstacle}" for obstacle in status.obstacles[:_OBSTACLES]]
    if len(status.obstacles) > _OBSTACLES:
        lines.append(f"  and {len(status.obstacles) - _OBSTACLES} more; -o json lists all")
    lines.append(f"nodes of original agents: {', '.join(status.policy.original_nodes) or 'none'}")
    total = sum(status.standings.values())
    lines.append(f"{count(total, 'bound pod')} with GPUs")
    lines += [
        f"  {number} {standing.value}"
        for standing, number in sorted(status.standings.items(), key=lambda each: each[0].name)
    ]
    if status.doubtful:
        lines.append(f"not believed: {list_some(status.doubtful)}")
    return lines + list(status.notes)


def _describe_take_over(status: TrustStatus) -> str:
    policy = status.policy
    if policy.takeover_began is None:
        return "never begun"
    if policy.taking_over:
        left = f"{count(len(status.waiting), 'pod')} left to sign"
        some = f": {list_some(status.waiting)}" if status.waiting else ""
        return f"under way since {write_time(policy.takeover_began)}, {left}{some}"
    return f"ended at {write_time(policy.takeover_ended)}"


def list_some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _spell_age(seconds: int) -> str:
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{letter}"
    return f"{max(seconds, 0)}s"
