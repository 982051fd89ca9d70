"""Answers for `<service>.<namespace>.svc.cluster.local`, as a cluster's DNS does, and no more.

A program: it gets the address to listen on, and how to reach the API server as one user.
"""

import socket
import struct
import sys
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from slicewise_testbed.api import Api, ApiError
from slicewise_testbed.certificates import Pair
from slicewise_testbed.kubeconfig import Kubeconfig

DOMAIN = "cluster.local"
PORT = 53
_ADDRESS_RECORD = 1
_NO_SUCH_NAME = 3
_SECONDS_TO_LIVE = 5
_HEAD = struct.Struct(">HHHHHH")
_KIND = struct.Struct(">HH")


def main() -> None:
    """Answer until killed."""
    listen, server, authority, certificate, key = sys.argv[1:]
    user = Pair(Path(certificate), Path(key))
    config = Kubeconfig(Path(), server, Path(authority), user)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line, Api(config) as api:
        line.bind((listen, PORT))
        while True:
            query, peer = line.recvfrom(1500)
            if reply := answer(query, lambda name: find_addresses(api, name)):
                line.sendto(reply, peer)


def find_addresses(api: Api, name: str) -> list[str] | None:
    """The address of the Service of this name, or of its pods if it has none of its own.

    None when there is no such Service.
    """
    labels = name.lower().removesuffix(".").split(".")
    if len(labels) != 5 or labels[2:] != ["svc", *DOMAIN.split(".")]:
        return None
    try:
        found = api.get(f"/api/v1/namespaces/{labels[1]}/services/{labels[0]}")
        address = str(found["spec"].get("clusterIP", ""))
        if address != "None":
            return [address] if address else None
        slices = api.get(
            f"/apis/discovery.k8s.io/v1/namespaces/{labels[1]}/endpointslices",
            labelSelector=f"kubernetes.io/service-name={labels[0]}",
        )
    except (ApiError, OSError, HTTPException):
        return None
    endpoints = [each for part in slices["items"] for each in part.get("endpoints") or ()]
    return [
        address
        for endpoint in endpoints
        if endpoint["conditions"].get("ready", True)
        for address in endpoint["addresses"]
    ]


def answer(query: bytes, find: Callable[[str], list[str] | None]) -> bytes:
    """The reply to a query of one question; empty for what is none."""
    if len(query) < _HEAD.size or _HEAD.unpack_from(query)[2] != 1:
        return b""
    number = _HEAD.unpack_from(query)[0]
    labels, at = [], _HEAD.size
    while at < len(query) and (size := query[at]):
        labels.append(query[at + 1 : at + 1 + size].decode("ascii", "replace"))
        at += 1 + size
    end = at + 1 + _KIND.size
    if end > len(query):
        return b""
    question = query[_HEAD.size : end]
    addresses = find(".".join(labels))
    # Response, authoritative, with the recursion that every client asks for.
    flags = 0x8580 | (_NO_SUCH_NAME if addresses is None else 0)
    kind = _KIND.unpack_from(question, len(question) - _KIND.size)[0]
    if addresses is None or kind != _ADDRESS_RECORD:
        addresses = []
    # The name is that of the question, 12 bytes from the beginning.
    record = struct.pack(">HHHIH", 0xC00C, _ADDRESS_RECORD, 1, _SECONDS_TO_LIVE, 4)
    answers = b"".join(record + socket.inet_aton(each) for each in addresses)
    return _HEAD.pack(number, flags, 1, len(addresses), 0, 0) + question + answers


if __name__ == "__main__":
    main()
