"""What namespaces demand of their pods' isolation, by the labels of the Namespaces.

While they cannot be read, no share is allocated: a floor that nobody sees must not be missed.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from slicewise.dialects.shared.isolation import read_rules
from slicewise.kube import sources
from slicewise.kube.client import Client
from slicewise.kube.objects import BareBody, Metadata
from slicewise.kube.watch import Informer, Seen, WatchEvent, WatchSettings
from slicewise.model import NO_RULES, IsolationRules

_UNREAD: Final = IsolationRules(
    unreadable="the labels of namespaces could not be read so far; "
    "allow the extender to list and watch namespaces"
)


class NamespaceRules:
    """Keeps the rules of every namespace that has any."""

    def __init__(self, client: Client, settings: WatchSettings | None = None) -> None:
        self._rules: dict[str, IsolationRules] = {}
        self.informer: Informer[BareBody, Metadata] = Informer(
            client, sources.namespaces(), self.take, settings=settings
        )

    @property
    def synced(self) -> asyncio.Event:
        return self.informer.synced

    def find(self, namespace: str) -> IsolationRules:
        """What is demanded there."""
        if not self.synced.is_set():
            return _UNREAD
        return self._rules.get(namespace, NO_RULES)

    def take(self, changes: Sequence[WatchEvent[Metadata]]) -> None:
        for change in changes:
            if not isinstance(change, Seen):
                self._rules.pop(change.key, None)
                continue
            rules = read_rules(change.value.labels or {})
            if rules == NO_RULES:
                self._rules.pop(change.value.name, None)
            else:
                self._rules[change.value.name] = rules
