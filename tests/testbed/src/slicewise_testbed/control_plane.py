"""A Kubernetes control plane: etcd, API server, controller manager and scheduler, as themselves.

Everything listens on loopback, in the testbed's own network, or on a unix socket in its folder.
It needs no root; real and simulated nodes join it through kubeconfigs it issues.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Any

from slicewise_testbed import flags
from slicewise_testbed.api import Api
from slicewise_testbed.binaries import CONTROL_PLANE, Binaries
from slicewise_testbed.certificates import Authority
from slicewise_testbed.errors import TestbedError
from slicewise_testbed.kubeconfig import Kubeconfig, write_kubeconfig
from slicewise_testbed.ports import free_port
from slicewise_testbed.settings import Settings
from slicewise_testbed.testbed import Testbed, wait_until
from slicewise_testbed.versions import chosen_version, minor

READY_SECONDS = 60.0
_SCHEDULER_READYZ = 31
ADMIN = ("admin", ("system:masters",))


class ControlPlane:
    """A running control plane; `admin` is the way in."""

    def __init__(self, bed: Testbed, binaries: Binaries, settings: Settings | None = None) -> None:
        if missing := binaries.missing(CONTROL_PLANE):
            raise TestbedError(f"no {', '.join(missing)} on this machine; run `make kube`")
        self.bed = bed
        self.binaries = binaries
        self.settings = settings or Settings()
        self.port = free_port()
        self.address = flags.LOOPBACK if bed.network is None else bed.network.address
        self.server = f"https://{self.address}:{self.port}"
        self._folder = bed.folder / "control-plane"
        self.authority = Authority(self._folder / "pki", "testbed-ca")
        self.admin = self.kubeconfig(*ADMIN)
        self._scheduler_port = free_port()

    def start(self) -> "ControlPlane":
        """Ready for pods: the API answers, service accounts appear, the scheduler is in sync."""
        paths = flags.Paths.make(self._folder, self.authority, self.address)
        self._apiserver = flags.apiserver(paths, self.port, self.settings, self.address)
        self.bed.spawn("etcd", [self.binaries.path("etcd"), *flags.etcd(paths)])
        # The API server backs off for seconds when etcd is not there at its first try.
        wait_until(paths.socket.exists, READY_SECONDS, lambda: f"no etcd: {self.bed.tail('etcd')}")
        self.start_apiserver()
        manager = self.kubeconfig("system:kube-controller-manager")
        argv = flags.controller_manager(paths, manager.path, self.settings)
        self.bed.spawn(
            "kube-controller-manager", [self.binaries.path("kube-controller-manager"), *argv]
        )
        self.start_scheduler(self.settings.scheduler)
        with self.api() as api:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            api.wait_for(account, lambda _: True, READY_SECONDS)
        return self

    def start_apiserver(self) -> None:
        """The API server runs, again if it was stopped, and is ready."""
        self.bed.spawn("kube-apiserver", [self.binaries.path("kube-apiserver"), *self._apiserver])
        self._wait_ready("kube-apiserver", self.admin)

    def stop_apiserver(self, number: signal.Signals = signal.SIGKILL) -> None:
        """The API server is gone; etcd keeps what it stored."""
        self.bed.stop("kube-apiserver", number)

    def start_scheduler(self, config: Mapping[str, Any]) -> None:
        """The scheduler runs with this configuration, in place of the one that ran before."""
        if self.bed.alive("kube-scheduler"):
            self.stop_scheduler()
        user = self.kubeconfig("system:kube-scheduler")
        path = self._folder / "scheduler.json"
        path.write_text(json.dumps(flags.scheduler_configuration(config, user.path)))
        port = self._scheduler_port
        argv = flags.scheduler(path, user.path, port, self.settings, self.address)
        self.bed.spawn("kube-scheduler", [self.binaries.path("kube-scheduler"), *argv])
        self._wait_ready("kube-scheduler", self._scheduler_access())

    def stop_scheduler(self) -> None:
        """The scheduler is gone, and pods stay Pending."""
        self.bed.stop("kube-scheduler", signal.SIGKILL)

    def scheduler_metrics(self) -> str:
        """The scheduler's own figures, in Prometheus text."""
        with Api(self._scheduler_access()) as api:
            return api.raw("GET", "/metrics")[1].decode()

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Kubeconfig:
        """The kubeconfig of a user of these groups, known to the API server by certificate."""
        pair = self.authority.issue(user, groups)
        path = pair.certificate.with_suffix(".kubeconfig")
        authority = self.authority.certificate.certificate
        return write_kubeconfig(path, self.server, authority, pair)

    def api(self, config: Kubeconfig | None = None) -> Api:
        """A client, as the administrator if no other user is given."""
        return Api(config or self.admin)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl printed; a failure is an error that carries its message."""
        command = [self.binaries.path("kubectl"), *arguments]
        done = subprocess.run(
            command,
            env=self.kubectl_environment(),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise TestbedError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def kubectl_environment(self) -> dict[str, str]:
        """An environment in which kubectl and helm see this cluster and nothing of the user's."""
        home = str(self._folder / "home")
        path = os.pathsep.join((*map(str, self.binaries.folders), os.environ["PATH"]))
        return {"PATH": path, "HOME": home, "KUBECONFIG": str(self.admin.path)}

    def audit_events(self) -> Iterator[dict[str, Any]]:
        """The requests recorded so far, in the order of their arrival."""
        if self.settings.audit is None:
            raise TestbedError("no audit log; pass Settings(audit='Metadata')")
        for line in (self._folder / flags.AUDIT_LOG).read_text().splitlines():
            yield json.loads(line)

    def _scheduler_access(self) -> Kubeconfig:
        server = f"https://{self.address}:{self._scheduler_port}"
        authority = self.authority.certificate.certificate
        path = self._folder / "pki" / "scheduler-endpoint.kubeconfig"
        return write_kubeconfig(path, server, authority, self.admin.user)

    def _wait_ready(self, name: str, access: Kubeconfig) -> None:
        # Schedulers before 1.31 tell their health alone.
        old = name == "kube-scheduler" and minor(chosen_version()) < _SCHEDULER_READYZ
        page = "/healthz" if old else "/readyz"
        with Api(access) as api:

            def ready() -> bool:
                if not self.bed.alive(name):
                    raise TestbedError(f"{name} ended: {self.bed.tail(name)}")
                try:
                    return api.raw("GET", page)[0] == 200
                except (OSError, HTTPException):
                    return False

            wait_until(ready, READY_SECONDS, lambda: f"{name} is not ready: {self.bed.tail(name)}")
