"""The command lines of the control plane's processes, with the reasons of the odd flags."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slicewise_testbed.certificates import Authority, Pair, write_key
from slicewise_testbed.settings import Settings
from slicewise_testbed.versions import chosen_version, minor

AUDIT_LOG = "audit.jsonl"
LOOPBACK = "127.0.0.1"
_HOSTS = (LOOPBACK, "10.0.0.1", "localhost", "kubernetes.default", "kubernetes.default.svc")
_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Paths:
    """The files the control plane's flags point to."""

    folder: Path
    authority: Pair
    serving: Pair
    kubelet_client: Pair
    proxy_authority: Path
    proxy_client: Pair
    token_key: Path

    @classmethod
    def make(cls, folder: Path, authority: Authority, address: str) -> "Paths":
        """All certificates a control plane needs, freshly signed."""
        # The front proxy has an authority of its own: whoever holds a certificate of it may
        # claim to be any user.
        proxy = Authority(folder / "pki", "front-proxy-ca")
        return cls(
            folder,
            authority=authority.certificate,
            serving=authority.issue("kube-apiserver", hosts=(*_HOSTS, address)),
            kubelet_client=authority.issue("kubelet-client", ("system:masters",)),
            proxy_authority=proxy.certificate.certificate,
            proxy_client=proxy.issue("front-proxy-client"),
            token_key=write_key(folder / "pki" / "tokens.key"),
        )

    @property
    def socket(self) -> Path:
        """Where etcd listens; only this user can open it."""
        return self.folder / "etcd.sock"


def etcd(paths: Paths) -> list[str]:
    """etcd on unix sockets, without the disk flushes a throw-away cluster does not need."""
    # etcd insists on advertising a host and a port; nothing here ever dials them.
    nowhere = "http://127.0.0.1:1"
    return [
        "--name=testbed",
        f"--data-dir={paths.folder / 'etcd'}",
        f"--listen-client-urls=unix://{paths.socket}",
        f"--advertise-client-urls={nowhere}",
        f"--listen-peer-urls=unix://{paths.folder / 'peer.sock'}",
        f"--initial-advertise-peer-urls={nowhere}",
        f"--initial-cluster=testbed={nowhere}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(paths: Paths, port: int, settings: Settings, address: str) -> list[str]:
    """An API server with what aggregated APIs and kubelets need, on loopback or in a network."""
    # Pods reach it by the address that it advertises, which may not be a loopback one.
    listen = address if address == LOOPBACK else "0.0.0.0"
    return [
        f"--etcd-servers=unix://{paths.socket}",
        f"--bind-address={listen}",
        f"--advertise-address={address}",
        # From 1.37 on it ends where its address cannot be that of the Service `kubernetes`.
        *(_since(37, "--endpoint-reconciler-type=none") if address == LOOPBACK else ()),
        f"--secure-port={port}",
        f"--client-ca-file={paths.authority.certificate}",
        f"--tls-cert-file={paths.serving.certificate}",
        f"--tls-private-key-file={paths.serving.key}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={paths.token_key}",
        f"--service-account-signing-key-file={paths.token_key}",
        f"--api-audiences={_ISSUER}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        # Node names resolve nowhere, and no hosts file is edited: the address in the Node counts.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-certificate-authority={paths.authority.certificate}",
        f"--kubelet-client-certificate={paths.kubelet_client.certificate}",
        f"--kubelet-client-key={paths.kubelet_client.key}",
        f"--requestheader-client-ca-file={paths.proxy_authority}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        *_since(32, "--requestheader-uid-headers=X-Remote-Uid"),
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={paths.proxy_client.certificate}",
        f"--proxy-client-key-file={paths.proxy_client.key}",
        f"--enable-aggregator-routing={str(settings.aggregator_routing).lower()}",
        *_audit(paths, settings),
        *_gates(settings),
        *settings.apiserver_flags,
    ]


def controller_manager(paths: Paths, kubeconfig: Path, settings: Settings) -> list[str]:
    """Every controller, fast enough for a thousand pods at once."""
    return [
        f"--kubeconfig={kubeconfig}",
        # The controller manager's own user may do little; each controller acts as its account.
        "--use-service-account-credentials=true",
        f"--root-ca-file={paths.authority.certificate}",
        f"--service-account-private-key-file={paths.token_key}",
        f"--cluster-signing-cert-file={paths.authority.certificate}",
        f"--cluster-signing-key-file={paths.authority.key}",
        "--leader-elect=false",
        "--secure-port=0",
        # The default is a folder of the machine, which would be created.
        f"--flex-volume-plugin-dir={paths.folder / 'volume-plugins'}",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        *_gates(settings),
        *settings.controller_manager_flags,
    ]


def scheduler(
    config: Path, kubeconfig: Path, port: int, settings: Settings, address: str
) -> list[str]:
    """A scheduler that serves its health and metrics to users the API server knows."""
    return [
        f"--config={config}",
        f"--bind-address={address}",
        f"--secure-port={port}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--tls-cert-file={config.parent / 'pki' / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={config.parent / 'pki' / 'kube-apiserver.key'}",
        *_gates(settings),
    ]


def scheduler_configuration(wanted: Mapping[str, Any], kubeconfig: Path) -> dict[str, Any]:
    """A whole KubeSchedulerConfiguration: the wanted fields, and the way to the API server."""
    # The default of 50 requests a second would take 40 s to bind 2,000 pods.
    connection = {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        **wanted,
        "clientConnection": {**connection, **wanted.get("clientConnection", {})},
    }


def _since(first: int, *flags: str) -> tuple[str, ...]:
    """Flags that there are from this minor version on."""
    return flags if minor(chosen_version()) >= first else ()


def _audit(paths: Paths, settings: Settings) -> list[str]:
    if settings.audit is None:
        return []
    policy = paths.folder / "audit-policy.json"
    rules = [{"level": settings.audit, "omitStages": ["RequestReceived"]}]
    policy.write_text(
        json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules})
    )
    log = paths.folder / AUDIT_LOG
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]


def _gates(settings: Settings) -> list[str]:
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in settings.feature_gates.items())
    return [f"--feature-gates={gates}"] if gates else []
