"""Services in a testbed's own network: kube-proxy translates them, a name server names them."""

import os
import sys

import yaml

from slicewise_testbed.control_plane import ControlPlane
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.name_server import DOMAIN
from slicewise_testbed.packages import NFTABLES, locate
from slicewise_testbed.testbed import wait_until
from slicewise_testbed.versions import chosen_version, minor

PROXY = "kube-proxy"
NAME_SERVER = "name-server"
PODS = "198.18.0.0/15"


def start_services(plane: ControlPlane, node: str) -> None:
    """Pods, the API server and whatever runs in the testbed reach Services by address and name.

    The proxy looks for its own Node, which must exist, for half a minute before it begins.
    """
    if plane.bed.network is None:
        raise TestbedError("Services need a network: Testbed.start(own_network=True)")
    _start_proxy(plane, node)
    _start_name_server(plane)


def dns_settings(address: str) -> dict[str, object]:
    """Fields of a KubeletConfiguration by which pods ask the name server."""
    return {"clusterDNS": [address], "clusterDomain": DOMAIN}


def _start_proxy(plane: ControlPlane, node: str) -> None:
    user = plane.kubeconfig("system:kube-proxy")
    path = plane.bed.folder / "kube-proxy.yaml"
    old = minor(chosen_version()) < 31
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "mode": "nftables",
                # It had to be allowed before 1.31.
                **({"featureGates": {"NFTablesProxyMode": True}} if old else {}),
                "hostnameOverride": node,
                "clientConnection": {"kubeconfig": str(user.path)},
                "clusterCIDR": PODS,
                # The table of connections is the machine's, and stays as large as it is.
                "conntrack": {"maxPerCore": 0, "min": 0},
                "nodePortAddresses": ["127.0.0.0/8"],
            }
        )
    )
    search = os.pathsep.join((os.environ["PATH"], str(locate(NFTABLES).parent)))
    command = [plane.binaries.path(PROXY), f"--config={path}"]
    plane.bed.spawn(PROXY, command, {"PATH": search})
    wait_until(
        lambda: (
            "caches populated" in plane.bed.log(PROXY).read_text().lower()
            or "synced" in plane.bed.log(PROXY).read_text().lower()
        ),
        30,
        lambda: f"no kube-proxy: {plane.bed.tail(PROXY)}",
    )


def _start_name_server(plane: ControlPlane) -> None:
    user = plane.kubeconfig("name-server", ("system:masters",))
    pair = user.user
    files = (user.authority, pair.certificate, pair.key)
    module = [sys.executable, "-m", "slicewise_testbed.name_server"]
    plane.bed.spawn(NAME_SERVER, [*module, plane.address, plane.server, *map(str, files)])
