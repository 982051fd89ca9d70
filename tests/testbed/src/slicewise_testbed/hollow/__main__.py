"""Plays the kubelets of the simulated nodes of the API server given on the command line."""

import asyncio
import ssl
import sys

from slicewise_testbed.hollow.client import Client
from slicewise_testbed.hollow.kubelets import Kubelets


async def play(server: str, authority: str, certificate: str, key: str) -> None:
    """Play until killed."""
    tls = ssl.create_default_context(cafile=authority)
    tls.load_cert_chain(certificate, key)
    client = Client(server, tls)
    try:
        await Kubelets(client).play()
    finally:
        await client.close()


asyncio.run(play(*sys.argv[1:5]))
