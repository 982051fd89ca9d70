"""The nodes of a cluster as its scheduler sees them before it asks an extender."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from slicewise.explain.candidates import HeldAmounts, LeftOut, split_nodes
from slicewise.explain.manifests import ManifestError
from slicewise.kube import sources
from slicewise.kube.affinity import read_node_requirements, rejection
from slicewise.kube.client import Client
from slicewise.kube.node_details import list_node_details
from slicewise.kube.objects import ObjectReader, PodBody
from slicewise.kube.reads import list_all
from slicewise.model import NodeDetails, Pod


class SchedulerView:
    """Nodes as a scheduler sees them: labels, taints and what is left of each resource."""

    def __init__(
        self, nodes: Sequence[NodeDetails], pods: Iterable[Pod], reader: ObjectReader
    ) -> None:
        self._nodes = nodes
        self._held = HeldAmounts(pods)
        self._reader = reader

    @classmethod
    async def read(cls, client: Client, reader: ObjectReader) -> "SchedulerView":
        nodes = await list_node_details(client, reader)
        return cls(nodes, await list_all(client, sources.pods(reader)), reader)

    def choose(self, spec: Mapping[str, Any], *, placed: bool = False) -> tuple[list[str], LeftOut]:
        """The nodes left by a pod's spec, and the others with their reasons.

        The node name of a pod that is placed was written by the scheduler, so it demands nothing,
        and the pod is counted there already.
        """
        home = spec.get("nodeName") if placed else None
        try:
            body = msgspec.convert({"metadata": {}, "spec": spec}, PodBody)
            required = read_node_requirements({**spec, "nodeName": None} if placed else spec)
        except msgspec.ValidationError as error:
            raise ManifestError(f"pod spec: {error}") from error
        pod = self._reader.read_pod(body)
        return split_nodes(
            {
                each.name: rejection(required, each)
                or self._held.find_shortage(each.notice, pod, counted=each.name == home)
                for each in self._nodes
            }
        )
