"""Plays the simulated kubelets of an API server: address, authority, certificate and key."""

import asyncio
import ssl
import sys

from slicewise_playground.kubelet.api_server import play_kubelets


async def _play(server: str, authority: str, certificate: str, key: str) -> None:
    tls = ssl.create_default_context(cafile=authority)
    tls.load_cert_chain(certificate, key)
    await play_kubelets(server, tls)


if __name__ == "__main__":
    asyncio.run(_play(*sys.argv[1:5]))
