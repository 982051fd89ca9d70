"""Informers: lists and watches of one resource, handed over as changes, and their upkeep."""

from slicewise.kube.watch.bad_objects import UNREADABLE, BadObject
from slicewise.kube.watch.informer import Informer, WatchSettings, split_lines
from slicewise.kube.watch.watch_monitor import WatchMonitor
from slicewise.kube.watch.watched_objects import Gone, KubeObject, Seen, WatchEvent, WatchSource

__all__ = [
    "UNREADABLE",
    "BadObject",
    "Gone",
    "Informer",
    "KubeObject",
    "Seen",
    "WatchEvent",
    "WatchMonitor",
    "WatchSettings",
    "WatchSource",
    "split_lines",
]
